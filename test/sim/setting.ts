import { type Config, loadWorkerConfig } from '../../src/config/config.ts';
import { defineLayout, type Layout } from '../../src/core/layout.ts';
import type { LeaseTiming } from '../../src/core/reservation.ts';
import { namespaceKeys } from '../../src/identity/keys.ts';

/** The configuration of all simulated workers. */
export const DATACENTER = 4;
export const PARTITIONS = 2;
export const MACHINES = 3;
/** Machines for each of two pairs of topics: not more than the pool has worker IDs for. */
export const GROWTH_MACHINES = 2;
export const REPLY_TOPICS = ['id.replies.a', 'id.replies.b'] as const;
/** An allowed reply topic that is created only later, if at all. */
export const LATE_REPLY_TOPIC = 'id.replies.late';
export const isReplyTopic = (topic: string): boolean => topic.startsWith('id.replies.');
/** Reply topics with a quota, which is used up now and then. */
export const LIMITED_TOPICS: readonly string[] = [REPLY_TOPICS[1], LATE_REPLY_TOPIC];
/** A topic that is not allowed for replies. */
export const FOREIGN_TOPIC = 'somebody.elses';
/** The header that identifies a request; replies and dead letters have a copy. */
export const TAG = 'traceparent';
/** The sequences of some simulations: named so that both partitions are the home of one. */
export const SEQUENCES = ['invoices', 'tickets'] as const;
/** The numbers end within reach. */
export const SEQUENCE = { next: 1, step: 1, max: 600, format: '', closed: false, edition: 1 } as const;
const SEEDS_WITH_SEQUENCES = 5;
export function hasSequences(seed: number): boolean {
  return seed % SEEDS_WITH_SEQUENCES === 3;
}
/** A shorter lease than the default, so that more terms start and end in the same time. */
export const timing: LeaseTiming = {
  ttlMs: 12_000,
  heartbeatMs: 3_000,
  refuseAfterMs: 6_000,
  reserveMs: 9_000,
  marginMs: 3_000,
};
export const PREFIX = '/sim';
export const keys = namespaceKeys(PREFIX, DATACENTER);

/** A layout with so few IDs per tick that batches often reach the ends of ticks. */
export const FINE = defineLayout({
  name: 'sim',
  fields: [
    { role: 'timestamp', bits: 41, label: 'timestamp' },
    { role: 'datacenter', bits: 5, label: 'datacenter' },
    { role: 'worker', bits: 5, label: 'worker' },
    { role: 'sequence', bits: 4, label: 'sequence' },
  ],
  tickMs: 1,
  epochMs: 1_600_000_000_000,
  sequenceStartBelow: 1,
});

/**
 * A layout of which the other one shows nothing: a tick is lost when it is over, begins anywhere, and has the IDs of
 * other workers between those of one.
 */
export const COARSE = defineLayout({
  name: 'coarse',
  fields: [
    { role: 'timestamp', bits: 41, label: 'timestamp' },
    { role: 'sequence', bits: 6, label: 'sequence' },
    { role: 'datacenter', bits: 5, label: 'datacenter' },
    { role: 'worker', bits: 5, label: 'worker' },
  ],
  tickMs: 10,
  epochMs: FINE.epochMs,
  sequenceStartBelow: 8,
});

/** Two of eleven seeds have the coarse layout: the others then show what they showed without. */
const SEEDS_OF_LAYOUTS = 11;
const COARSE_SEEDS: readonly number[] = [6, 7];
export function layoutOf(seed: number): Layout {
  return COARSE_SEEDS.includes(seed % SEEDS_OF_LAYOUTS) ? COARSE : FINE;
}

/** The largest count of a request that workers allow at first, in some simulations. */
export const LOW_COUNT = 100;
/** More than twice the difference between two brokers' clocks here. */
export const CLOCK_MARGIN_MS = 12_500;
/** A decision is renewed for a request that came this long after it. */
export const RENEW_AFTER_MS = 2_000;
/** A worker gets a partition immediately if its copy lacks at most this many entries. */
export const ACCEPTABLE_LAG = 10;
/** A simulation is short and has few entries, so rare events must come early. */
const HASTY = {
  renewAfterMs: RENEW_AFTER_MS,
  copyLingerMs: 4_000,
  acceptableLag: ACCEPTABLE_LAG,
  junkRate: { perSecond: 0.2, burst: 1 },
  debtRate: { usPerMs: 0.02, burstUs: 30 },
};
/** The true time at the start of a simulation. */
export const START_MS = FINE.epochMs + 1_000_000_000;

const loaded = loadWorkerConfig({
  KAFKA_BROKERS: 'broker-1:9092,broker-2:9092,broker-3:9092',
  ETCD_ENDPOINTS: 'http://etcd:2379',
  ETCD_PREFIX: PREFIX,
  DATACENTER_ID: String(DATACENTER),
  REQUEST_PARTITIONS: String(PARTITIONS),
  KAFKA_SESSION_TIMEOUT_MS: '6000',
  WORKER_IP: '10.0.0.1',
  API_PORT: 'off',
  BROKER_CLOCK_MARGIN_MS: String(CLOCK_MARGIN_MS),
  QUOTAS: LIMITED_TOPICS.map((topic) => `${topic} 1000 20`).join(';'),
});

/**
 * A hash of ledger keys that some indexes use instead of their own: so short that keys often share it.
 */
export function shortHashOf(key: Buffer): string {
  return String(key.reduce((sum, byte) => (31 * sum + byte) % 64, 0));
}

/** The configuration of a worker with this many brokers. */
export function configFor(layout: Layout, nodes: number, standbys: Config['standbys']): Config {
  const topics = { ...loaded.topics, replicationFactor: nodes, allowWeakLedger: nodes < 3 };
  const { maxCount } = layout;
  return { ...loaded, ...HASTY, standbys, topics, layout, timing, maxCount, pool: POOL };
}

export const { requests: REQUESTS, ledger: LEDGER, deadLetters: DEAD_LETTERS, witness: WITNESS } = loaded.topics;
export const GROUP = loaded.groupId;
export const SESSION_MS = loaded.groupSessionMs;

/** The worker IDs of a namespace, and the UUID of one that is not there yet. */
export const POOL = { first: 0, last: 3 } as const;
export const NO_NAMESPACE = '01234567-89ab-4cde-8f01-23456789abcd';
