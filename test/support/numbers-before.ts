import { partitionsOf } from '../../src/adapters/kafka/topics/spans.ts';
import { homePartition } from '../../src/cli/sequence/sequence-log.ts';
import { WIDE_REPLY_FINGERPRINT } from '../../src/codec/id-reply.ts';
import { encodeLedgerEntry, requestHash } from '../../src/codec/ledger-entry.ts';
import { encodeNumbersKey, encodeStatementKey } from '../../src/codec/ledger-key.ts';
import type { Realm } from './realm.ts';

/** A document whose numbers were given out before there were heads. */
export const KEPT = { correlationId: 'kept', first: 40, count: 2 } as const;

/**
 * Writes what the ledger has of a sequence since before etcd knew of sequences: a statement without an edition, and the
 * numbers of one request, whose request is in the topic. Both topics must be empty.
 */
export async function leaveNumbersBefore(realm: Realm, sequence: string, replyTopic: string): Promise<void> {
  const { correlationId, first, count } = KEPT;
  const partition = homePartition(sequence, await partitionsOf(realm.source, realm.ledgerTopic));
  await realm.send([{ correlationId, count, replyTopic, sequence, partition }]);
  const position = { end: 0, through: -1 } as const;
  const definition = { step: 1, max: 1_000, format: '', closed: false, edition: 0, first: undefined, isLoss: false };
  const statement = { kind: 'statement', ...position, at: 0, next: first, ...definition } as const;
  const numbers = {
    kind: 'numbers',
    ...position,
    at: 1,
    requestHash: requestHash(count, replyTopic),
    replyTopic,
    requestOffset: 0,
    framing: 'SINGLE_OBJECT',
    schemaFingerprint: WIDE_REPLY_FINGERPRINT,
    first,
    count,
    step: 1,
    format: '',
  } as const;
  const records = [
    { partition, key: encodeStatementKey(sequence), value: encodeLedgerEntry(statement) },
    { partition, key: encodeNumbersKey(sequence, Buffer.from(correlationId)), value: encodeLedgerEntry(numbers) },
  ];
  await realm.sendRaw(records, realm.ledgerTopic);
}
