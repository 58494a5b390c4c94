import { counted } from '../output.ts';

/** The result of one check. */
export interface Check {
  readonly name: string;
  /** fault: a worker can't run. warn: it can, until something else happens. */
  readonly state: 'ok' | 'warn' | 'fault';
  readonly detail: string;
  /** The remedy. */
  readonly fix?: string;
}

export const ok = (name: string, detail: string): Check => ({ name, state: 'ok', detail });
export const warn = (name: string, detail: string, fix: string): Check => ({ name, state: 'warn', detail, fix });
export const fault = (name: string, detail: string, fix: string): Check => ({ name, state: 'fault', detail, fix });

export function unreachableServer(name: string, why: string, variable: string): Check {
  return fault(name, why, `start it, or correct ${variable}`);
}

/** Likely mistakes in the variables, as a worker logs them at its start. */
export function judgeVariables(warnings: readonly string[]): Check[] {
  return warnings.map((warning) => warn('variables', warning, 'correct this variable'));
}

const DAY_MS = 86_400_000;
const EXPIRES_SOON_MS = 14 * DAY_MS;

/** The expiry of the CA certificates or the certificate in a variable. */
export function judgeCertificate(variable: string, expiresAtMs: number, nowMs: number): Check {
  const name = `certificate ${variable}`;
  const on = new Date(expiresAtMs).toISOString().slice(0, 16).replace('T', ' ');
  const fix = 'replace it: in its file, which needs no restart, or in the variable';
  if (expiresAtMs <= nowMs) return fault(name, `expired on ${on} UTC`, fix);
  const days = Math.floor((expiresAtMs - nowMs) / DAY_MS);
  const detail = `expires on ${on} UTC, in ${days < 1 ? 'less than a day' : counted(days, 'day')}`;
  return expiresAtMs - nowMs < EXPIRES_SOON_MS ? warn(name, detail, fix) : ok(name, detail);
}

/**
 * How long a server has to answer. Generous: on a busy machine one that is late must not look like one that is down.
 */
export const TIMEOUT_MS = 15_000;
