import type { Config } from '../../src/config/config.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import { DEAD_LETTERS, GROUP, LEDGER, PARTITIONS, REQUESTS } from './setting.ts';

/**
 * A request topic, with the ledger, dead-letter topic and group that belong to it. In the history, partitions are
 * numbered over all pairs: those of a pair, and of its ledger, start at `first`.
 */
export interface Pair {
  readonly requests: string;
  readonly ledger: string;
  readonly deadLetters: string;
  readonly group: string;
  readonly partitions: number;
  readonly first: number;
}

export const FIRST: Pair = {
  requests: REQUESTS,
  ledger: LEDGER,
  deadLetters: DEAD_LETTERS,
  group: GROUP,
  partitions: PARTITIONS,
  first: 0,
};

/** The second pair, added when the first needs more partitions. */
export const SECOND: Pair = {
  requests: `${REQUESTS}.2`,
  ledger: `${LEDGER}.2`,
  deadLetters: `${REQUESTS}.2.dlt`,
  group: `${GROUP}.2`,
  partitions: PARTITIONS + 1,
  first: PARTITIONS,
};

/**
 * Configurations that a namespace refuses: the group of another request topic, or its ledger, which fits by its
 * partitions.
 */
export const STRAYS: readonly Pair[] = [
  { ...SECOND, group: FIRST.group },
  { ...FIRST, requests: `${REQUESTS}.3`, deadLetters: `${REQUESTS}.3.dlt`, group: `${GROUP}.3` },
];

const PAIRS = [FIRST, SECOND] as const;

/** The configuration of a worker of this pair. */
export function configOf(config: Config, { requests, ledger, deadLetters, group, partitions }: Pair): Config {
  const topics = { ...config.topics, requests, ledger, deadLetters, requestPartitions: partitions };
  return { ...config, groupId: group, topics };
}

/** The pair that has a partition of the history. */
export function pairAt(partition: number): Pair {
  return partition < SECOND.first ? FIRST : SECOND;
}

/** The pair that has this topic or group; undefined if there is none. */
export function pairOf(what: 'requests' | 'ledger' | 'deadLetters' | 'group', name: string): Pair | undefined {
  return PAIRS.find((pair) => pair[what] === name);
}

/** The partitions of a pair, as numbered in the history. */
export function partitionsOf({ first, partitions }: Pair): number[] {
  return Array.from({ length: partitions }, (_, i) => first + i);
}

/**
 * The home partition of a correlation ID, or of the sequence that a request wants numbers of, in a pair, as numbered in
 * the history.
 */
export function homeOf(named: string, { first, partitions }: Pair): number {
  return first + partitionFor(Buffer.from(named, 'latin1'), partitions, () => 0);
}
