import { describeError } from '../../src/errors.ts';
import type { Log } from '../../src/log.ts';
import type { History } from './history.ts';
import type { World } from './world.ts';

/** Error lines that the faults of a simulation cause. */
const EXPECTED_ERRORS: readonly RegExp[] = [
  /^no worker ID can be acquired: .*"RESTORED"/,
  /"KAFKA_REFUSED".* a consumer that is not a worker/,
  /^partitions were added to a topic /,
];
/** A worker states a loss only after there was one. */
const LOST_TAIL = /^a ledger partition has lost its tail/;
/**
 * Appends that come late, and twice, behind a lost tail look like a copy of the log; nothing is decided until an
 * operator has looked.
 */
const COPIED = /LEDGER_COPIED/;
/** What an operator ends by adopting the cluster. */
const OTHER_CLUSTER = /CLUSTER_CHANGED|LEDGER_COPIED/;
/** Where etcd lost heads, a rebuild ends it. */
const STOPPED = /SEQUENCE_STOPPED|stopped until a rebuild/;
/** A partition is not served while its requests end below what is known: expected once they lost their tail. */
const SHORTER_REQUESTS = /REQUESTS_RECREATED/;
const LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace'] as const;

/** Writes to the trace. An `error` line needs an operator, which nothing here should. */
export function logOf(name: string, { world, history }: { readonly world: World; readonly history: History }): Log {
  return logTo((level, fields, message) => {
    const text = () => `${message} ${typeof fields === 'string' ? fields : shown(fields)}`;
    world.note(() => `${name} ${level}: ${text()}`);
    if (level !== 'error' && level !== 'fatal') return;
    if (history.requestLosses.length > 0 && SHORTER_REQUESTS.test(text())) return;
    if (history.losses.length > 0 && (LOST_TAIL.test(message) || COPIED.test(text()))) return;
    if (history.replacements.length > 0 && OTHER_CLUSTER.test(text())) return;
    if (history.setBacks.length > 0 && STOPPED.test(text())) return;
    if (!EXPECTED_ERRORS.some((one) => one.test(text()))) history.defects.push(`${name}: ${text()}`);
  });
}

function logTo(write: (level: (typeof LEVELS)[number], fields: object | string, message: string) => void): Log {
  const line = (level: (typeof LEVELS)[number]) => (fields: object | string, message?: string) =>
    write(level, fields, message ?? '');
  const log = Object.fromEntries(LEVELS.map((level) => [level, line(level)]));
  return Object.assign(log, { child: () => log }) as unknown as Log;
}

function shown(fields: object): string {
  return JSON.stringify(fields, (_, value) => {
    if (value instanceof Error) return describeError(value);
    return typeof value === 'bigint' ? String(value) : value;
  });
}
