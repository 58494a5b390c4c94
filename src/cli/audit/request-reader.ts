import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import { readDeadLetterNote } from '../../codec/dead-letter.ts';
import { asSingleObject, confluentSchemaId } from '../../codec/framing.ts';
import { ID_REQUEST_HEADER, WIDE_REQUEST_HEADER } from '../../codec/id-request.ts';
import { type DecidingEntry, requestHash } from '../../codec/ledger-entry.ts';
import type { LedgerKey } from '../../codec/ledger-key.ts';
import { decidingIdOf, type FullRequest, homeKeyOf, mergeRequest, salvageAddress } from '../../codec/request.ts';
import type { HeaderNames, RecordHeaders } from '../../codec/request-headers.ts';
import { RENEWAL } from '../../codec/sequence-entry.ts';
import { IdallocError, unlessInvalid } from '../../errors.ts';
import { partitionFor } from '../../kafka/records/partitioner.ts';
import type { DecidedRequest, FoundLetter, FoundRequest } from './found.ts';
import type { BatchLocation } from './location.ts';

/** How workers read requests. */
export interface RequestForm {
  readonly names: HeaderNames;
  /** How many partitions the ledger has: they decide. */
  readonly partitions: number;
}

const NONE = Buffer.alloc(0);

/** A record of the request topic; what can't be read as a request is one that workers reject. */
export function foundRequest(record: TopicRecord, { names, partitions }: RequestForm): FoundRequest {
  const { topic, partition, offset, timestampMs: timeMs, value } = record;
  const headers = record.headers as RecordHeaders;
  const place = { kind: 'request', source: 'request', topic, partition, offset, timeMs } as const;
  try {
    const request = readRequest(value, headers, names);
    const { count, replyTopic, correlationId, replyPartition, sequence, route } = request;
    return {
      ...place,
      requestId: decidingIdOf(request),
      correlationId,
      replyTopic,
      replyPartition,
      count,
      hash: requestHash(count, replyTopic),
      sequence,
      home: partitionFor(homeKeyOf(request), partitions, () => 0),
      origin: route.hops > 0 ? route.origin : undefined,
      isResent: route.firstSentMs !== undefined,
    };
  } catch (error) {
    if (!(error instanceof IdallocError)) throw error;
    const { requestId, correlationId = NONE, replyTopic = '' } = salvageAddress(value, headers, names);
    const own = { requestId: requestId ?? correlationId, correlationId, replyTopic, count: 0, hash: NONE };
    return { ...place, ...own, home: partition, isResent: false, rejected: error.code };
  }
}

/**
 * A schema ID of a registry is not looked up: a body in either schema of requests is one. Where workers knew neither, there is a dead
 * letter, which is an answer, too.
 */
function readRequest(value: Buffer | null, headers: RecordHeaders, names: HeaderNames): FullRequest {
  if (value === null || confluentSchemaId(value) === undefined) return mergeRequest(value, headers, names);
  const wide = unlessInvalid(() => mergeRequest(asSingleObject(WIDE_REQUEST_HEADER, value), headers, names));
  return wide ?? mergeRequest(asSingleObject(ID_REQUEST_HEADER, value), headers, names);
}

/** The records of a request topic that a dead letter stands for; none if it is about another topic, or not a worker's. */
export function foundLetters({ headers }: TopicRecord, requestTopic: string): FoundLetter[] {
  const { topic, partition, offsets, timestampMs, isRange, code = '' } = readDeadLetterNote(headers as RecordHeaders);
  if (topic !== requestTopic || partition === undefined || offsets === undefined) return [];
  // A letter for several has the time of the first.
  const recordMs = isRange || timestampMs === -1 ? undefined : timestampMs;
  return offsets.map((offset) => ({ partition, offset, recordMs, code }));
}

/**
 * What an entry says of its request, and how it contradicts itself, or the place where it is: the partition of its request's home, of
 * so many.
 */
export function decidedRequest(
  { partition }: BatchLocation,
  named: LedgerKey,
  entry: DecidingEntry,
  partitions: number,
): { readonly request: DecidedRequest; readonly violations: readonly string[] } {
  const { count, replyTopic, requestHash: hash, requestOffset: offset } = entry;
  const homeKey = named.kind === 'batch' ? named.requestId : Buffer.from(named.sequence, 'latin1');
  const home = partitionFor(homeKey, partitions, () => 0);
  return {
    request: { offset, hash, isRenewal: entry.kind === 'numbers' && entry.at === RENEWAL },
    violations: [
      ...(home === partition
        ? []
        : [`an entry is in partition ${partition}, but partition ${home} decides its request`]),
      ...(requestHash(count, replyTopic).equals(hash)
        ? []
        : [`an entry has another request hash than that of ${count} on ${replyTopic}`]),
    ],
  };
}
