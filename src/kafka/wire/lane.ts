/** The purpose of a connection. A broker serves the calls of a lane in order, so calls that may block have their own lane. */
export type Lane =
  | 'control'
  | 'append'
  | 'publish'
  | 'publish large'
  | 'requests'
  | 'large requests'
  | 'ledger'
  | 'group'
  | (string & {});

/** `undefined`: never closed when idle. */
const IDLE_MS: Readonly<Record<string, number | undefined>> = { requests: undefined, ledger: undefined, group: 5_000 };
const DEFAULT_IDLE_MS = 60_000;

/** How long a lane's connection may be idle before it is closed; undefined for ever. */
export function idleMsOf(lane: Lane): number | undefined {
  return lane in IDLE_MS ? IDLE_MS[lane] : DEFAULT_IDLE_MS;
}
