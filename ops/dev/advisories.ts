// Asks the registry for advisories about the packages that are shipped. Fails for a grave one; reports when the registry does not answer.
// Usage: npm run check:advisories
import { spawnSync } from 'node:child_process';
import { ROOT } from './paths.ts';

const TIMEOUT_MS = 60_000;
const ARGS = ['audit', '--omit=dev', '--json', '--loglevel=silent', '--fetch-retries=0', '--fetch-timeout=20000'];
const GRAVE = ['high', 'critical'];

export interface Verdict {
  readonly failed: boolean;
  readonly text: string;
}

/** The result of `npm audit --json`. Without an answer the check passes, and says that nothing was checked. */
export function judgeAudit(output: string): Verdict {
  const unknown = (why: string) => ({ failed: false, text: `advisories: could not be checked: ${why}` });
  let answer: unknown;
  try {
    answer = JSON.parse(output);
  } catch {
    return unknown('npm audit did not answer');
  }
  const { vulnerabilities, message } = (answer ?? {}) as {
    vulnerabilities?: Record<string, { severity: string }>;
    message?: string;
  };
  if (vulnerabilities === undefined)
    return unknown(message?.replace(/(- POST )?\bhttps?:\S+/g, '').trim() || 'npm audit failed');
  const names = (grave: boolean) =>
    Object.entries(vulnerabilities)
      .filter(([, { severity }]) => GRAVE.includes(severity) === grave)
      .map(([name, { severity }]) => `${name} (${severity})`);
  const [grave, others] = [names(true), names(false)];
  if (grave.length > 0) return { failed: true, text: `advisories: ${[...grave, ...others].join(', ')}: see npm audit` };
  return {
    failed: false,
    text: `advisories: ${others.length === 0 ? 'none' : `none is grave; ${others.join(', ')}`}`,
  };
}

if (import.meta.main) {
  const { stdout } = spawnSync('npm', ARGS, { cwd: ROOT, encoding: 'utf8', timeout: TIMEOUT_MS });
  const { failed, text } = judgeAudit(stdout ?? '');
  process.stdout.write(`${text}\n`);
  process.exitCode = failed ? 1 : 0;
}
