import { DESCRIPTOR_FORMAT_VERSION } from '../../src/codec/descriptor.ts';
import { defineLayout } from '../../src/core/layout.ts';
import type { LeaseTiming } from '../../src/core/reservation.ts';
import { namespaceKeys } from '../../src/identity/keys.ts';

/** What all simulated workers are configured with. */
export const DATACENTER = 4;
export const PARTITIONS = 2;
export const MACHINES = 3;
export const REQUESTS = 'id.requests';
export const DEAD_LETTERS = 'id.requests.dlt';
export const REPLY_TOPICS = ['id.replies.a', 'id.replies.b'] as const;
/** A shorter lease than the usual, so that more reigns begin and end in the same time. */
export const timing: LeaseTiming = {
  ttlMs: 12_000,
  heartbeatMs: 3_000,
  refuseAfterMs: 6_000,
  reserveMs: 9_000,
  marginMs: 3_000,
};
export const keys = namespaceKeys('/sim', DATACENTER);

/** So few IDs a tick that batches meet at the edges of ticks all the time. */
export const layout = defineLayout({
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

/** The true time when a simulation begins. */
export const START_MS = layout.epochMs + 1_000_000_000;

export const descriptor = {
  formatVersion: DESCRIPTOR_FORMAT_VERSION,
  layoutName: layout.name,
  layoutFingerprint: layout.fingerprint,
  epochMs: layout.epochMs,
  datacenterId: DATACENTER,
  pool: { first: 0, last: 3 },
  uuid: '01234567-89ab-4cde-8f01-23456789abcd',
} as const;
