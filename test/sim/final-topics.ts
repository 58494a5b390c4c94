import type { TopicRecord } from '../../src/adapters/kafka/topics/spans.ts';
import type { AuditLogs } from '../../src/cli/audit/reach.ts';
import type { Headers } from '../../src/kafka/records/record.ts';
import { headOf, recordsOf } from '../support/fake-kafka/batches.ts';
import type { Partition } from '../support/fake-kafka/partition.ts';
import type { Brokers } from './brokers.ts';
import { isReplyTopic, WITNESS } from './setting.ts';

/** What the topics have when a simulation ends, as an audit reads it. */
export interface FinalTopics {
  /** In log order within each partition. */
  readonly records: readonly TopicRecord[];
  readonly logs: AuditLogs;
  /** The time of brokers whose clocks are right. */
  readonly nowMs: number;
}

export function finalTopics(brokers: Brokers): FinalTopics {
  const { cluster, pairs } = brokers;
  const [first] = pairs;
  const partitionsOf = (name: string) => cluster.topics.get(name)?.partitions ?? [];
  const all = {
    ledger: pairs.flatMap(({ ledger }) => partitionsOf(ledger)),
    requests: partitionsOf(first?.requests ?? ''),
    replies: [...cluster.topics.keys()].filter(isReplyTopic).flatMap(partitionsOf),
    letters: partitionsOf(first?.deadLetters ?? ''),
    witness: partitionsOf(WITNESS),
  };
  const { ledger, requests, replies, letters, witness } = all;
  const answeredBelow = new Map(
    requests.flatMap(({ number }) => {
      const committed = cluster.groups.committed(first?.group ?? '', first?.requests ?? '', number);
      return committed === undefined ? [] : [[number, committed] as const];
    }),
  );
  const logs = {
    ...{ ledger: ledger.map(spanOf), requests: requests.map(spanOf), replies: replies.map(spanOf) },
    ...{ letters: letters.map(spanOf), witness: witness.map(spanOf), answeredBelow },
  };
  return { records: Object.values(all).flat().flatMap(recordsIn), logs, nowMs: brokers.nowMs() };
}

function spanOf(at: Partition) {
  return { topic: at.topic, partition: at.number, from: at.log.start, to: endOf(at) };
}

/** The end for readers of what is committed: before any open transaction. */
function endOf({ log, highWatermark }: Partition): number {
  return Math.min(log.stableEnd, highWatermark);
}

/** Without those of aborted transactions, and without markers. */
function recordsIn(at: Partition): readonly TopicRecord[] {
  const { topic, number: partition, log } = at;
  const end = endOf(at);
  const aborted = log.aborted(log.start, end);
  const shown = log.batches(log.start, end).filter((batch) => {
    const { baseOffset, producerId, isControl } = headOf(batch);
    const isAborted = aborted.some(
      (one) => one.producerId === producerId && one.firstOffset <= baseOffset && baseOffset < one.markerOffset,
    );
    return !isControl && !isAborted;
  });
  return shown
    .flatMap(recordsOf)
    .filter(({ offset }) => offset >= log.start && offset < end)
    .map(({ headers = {}, ...record }) => ({ topic, partition, ...record, headers: headers as Headers }));
}
