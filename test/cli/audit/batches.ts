import type { Finding, FoundBatch } from '../../../src/cli/audit/found.ts';
import { batchDigest, mergeRanges, OverlapSearch, packRanges } from '../../../src/cli/audit/ids.ts';
import { type JoinCounts, type JoinOptions, ReplyJoin } from '../../../src/cli/audit/replies.ts';
import { AuditStore } from '../../../src/cli/audit/store.ts';
import type { IdBatch } from '../../../src/codec/id-batch.ts';
import { compose } from '../../../src/core/layout.ts';
import { presetLayout } from '../../../src/core/presets.ts';
import { ticks } from '../../../src/core/units.ts';

export const LAYOUT = presetLayout('default');

/** A batch of the default layout: `count` IDs of tick `at` from `sequence` on. */
export function batchAt(at: number, count = 4, sequence = 0): IdBatch {
  const first = compose(LAYOUT, { ticks: ticks(at), datacenter: 4, worker: 18, sequence });
  return {
    ranges: [{ first, count }],
    step: 1n,
    datacenterId: 4,
    workerId: 18,
    fence: 7n,
    epochMs: LAYOUT.epochMs,
    layoutFingerprint: LAYOUT.fingerprint,
    generatedAtMs: LAYOUT.epochMs + at,
  };
}

type About = Partial<Omit<FoundBatch, 'requestId'>>;

function found(requestId: string, batch: IdBatch, about: About & Pick<FoundBatch, 'source' | 'topic'>): FoundBatch {
  const ranges = packRanges(mergeRanges(batch.ranges, batch.step), batch.step);
  const place = { partition: 0, offset: 0, timeMs: batch.generatedAtMs };
  return { ...place, ...about, requestId: Buffer.from(requestId), ranges, digest: batchDigest(batch, ranges) };
}

export function entry(requestId: string, batch: IdBatch, about: About = {}): FoundBatch {
  return found(requestId, batch, { source: 'ledger', topic: 'ledger', replyTopic: 'replies', ...about });
}

export function reply(requestId: string, batch: IdBatch, about: About = {}): FoundBatch {
  return found(requestId, batch, { source: 'reply', topic: 'replies', ...about });
}

/** The whole check, through a store on disk. */
export function check(
  batches: readonly FoundBatch[],
  ledgerReachesMs = Number.NEGATIVE_INFINITY,
  lostTails: JoinOptions['lostTails'] = { mayHave: () => false },
): { readonly findings: readonly Finding[]; readonly counts: JoinCounts } {
  const findings: Finding[] = [];
  const find = (finding: Finding) => void findings.push(finding);
  using store = new AuditStore(process.env.TMPDIR ?? '/tmp');
  for (const batch of batches) store.add(batch);
  const addUnit = (batch: FoundBatch) => store.addUnit(batch);
  const join = new ReplyJoin({ ledgerReachesMs, lostTails, find, addUnit });
  for (const batch of store.grouped()) join.take(batch);
  const counts = join.end();
  const overlaps = new OverlapSearch(find);
  for (const run of store.byFirstId()) overlaps.take(run);
  return { findings, counts };
}
