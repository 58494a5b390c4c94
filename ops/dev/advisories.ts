// Asks the registry for advisories against what is shipped. Fails for a grave one; says so when the registry does not tell.
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

/** What the output of `npm audit --json` says. Where there is no answer nothing is known, and nothing fails. */
export function judgeAudit(output: string): Verdict {
  const unknown = (why: string) => ({ failed: false, text: `advisories: could not be checked: ${why}` });
  let answer: unknown;
  try {
    answer = JSON.parse(output);
  } catch {
    return unknown('npm audit gave no answer');
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
    text: `advisories: ${others.length === 0 ? 'none' : `none that is grave; ${others.join(', ')}`}`,
  };
}

if (import.meta.main) {
  const { stdout } = spawnSync('npm', ARGS, { cwd: ROOT, encoding: 'utf8', timeout: TIMEOUT_MS });
  const { failed, text } = judgeAudit(stdout ?? '');
  process.stdout.write(`${text}\n`);
  process.exitCode = failed ? 1 : 0;
}
