// Checks the shipped packages for advisories. Fails for high and critical ones; only reports if the registry does not
// answer. Usage: npm run check:advisories
import { spawnSync } from 'node:child_process';
import { ROOT } from './paths.ts';

const TIMEOUT_MS = 60_000;
const ARGS = ['audit', '--omit=dev', '--json', '--loglevel=silent', '--fetch-retries=0', '--fetch-timeout=20000'];
const FAILING = ['high', 'critical'];

export interface Verdict {
  readonly failed: boolean;
  readonly text: string;
}

/**
 * The verdict on the output of `npm audit --json`. Without an answer the check passes, and reports that nothing was
 * checked.
 */
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
  const names = (failing: boolean) =>
    Object.entries(vulnerabilities)
      .filter(([, { severity }]) => FAILING.includes(severity) === failing)
      .map(([name, { severity }]) => `${name} (${severity})`);
  const [failing, others] = [names(true), names(false)];
  if (failing.length > 0)
    return { failed: true, text: `advisories: ${[...failing, ...others].join(', ')}: see npm audit` };
  return {
    failed: false,
    text: `advisories: ${others.length === 0 ? 'none' : `none is high or critical; ${others.join(', ')}`}`,
  };
}

if (import.meta.main) {
  const { stdout } = spawnSync('npm', ARGS, { cwd: ROOT, encoding: 'utf8', timeout: TIMEOUT_MS });
  const { failed, text } = judgeAudit(stdout ?? '');
  process.stdout.write(`${text}\n`);
  process.exitCode = failed ? 1 : 0;
}
