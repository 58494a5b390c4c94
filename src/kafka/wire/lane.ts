/** What a connection is for. Calls of one lane are served in their order, so what may wait long has a lane of its own. */
export type Lane = 'control' | 'append' | 'publish' | 'requests' | 'ledger' | 'group' | (string & {});

/** `undefined`: never closed for being idle. */
const IDLE_MS: Readonly<Record<string, number | undefined>> = { requests: undefined, ledger: undefined, group: 5_000 };
const DEFAULT_IDLE_MS = 60_000;

/** The connection of a lane is closed after so long without a call; undefined for never. */
export function idleMsOf(lane: Lane): number | undefined {
  return lane in IDLE_MS ? IDLE_MS[lane] : DEFAULT_IDLE_MS;
}
