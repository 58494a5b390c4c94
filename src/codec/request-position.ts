import { createHash, hash } from 'node:crypto';
import { memoize } from '../core/memoize.ts';
import { IdallocError } from '../errors.ts';
import { EMPTY_MARKER } from './ledger-entry.ts';
import type { RecordHeaders } from './request-headers.ts';

/** How far a request partition is answered. `next` <= `small`. */
export interface RequestPosition {
  /** Every request below this offset is answered. It is the committed offset. */
  readonly next: number;
  /**
   * Every request below this offset is answered, except those that others go before: large ones, those of dense
   * batches and those that wait for a debt. It is in the metadata of the committed offset.
   */
  readonly small: number;
  /** Which requests wait since who pays for them is in debt; none if undefined. */
  readonly debtors?: readonly DebtorSpan[] | undefined;
}

/** All requests to some reply topics, from an offset up to another one, not included. */
export interface DebtorSpan {
  /** The `topicHash` of the topic, or of what the names of all begin with, or EVERY_TOPIC, or EVERY_RECORD. */
  readonly topic: number;
  /** How many characters of a name that beginning has; 0 for one topic. */
  readonly prefix: number;
  readonly from: number;
  readonly until: number;
}

/** A position has at most so many spans: brokers limit the metadata of an offset to 4 KiB. */
export const MAX_DEBTOR_SPANS = 32;
const HASH_BYTES = 6;
const MAX_HASHES = 500;
/** The hash of no topic. */
export const EVERY_TOPIC = 2 ** (8 * HASH_BYTES);
/** All records, whatever they ask for: nobody looked at them. */
export const EVERY_RECORD = EVERY_TOPIC + 1;

/** A whole number of 48 bits, the same for equal names in every release. Names come again, and a hash takes long. */
export const topicHash = memoize((name) => hash('sha256', name, 'buffer').readUIntBE(0, HASH_BYTES), MAX_HASHES);

/** Whether a span is of this reply topic too. The same for every reader, whatever quotas it has. */
export function isNamed({ topic, prefix }: Pick<DebtorSpan, 'topic' | 'prefix'>, replyTopic: string): boolean {
  return topic >= EVERY_TOPIC || topic === topicHash(prefix === 0 ? replyTopic : replyTopic.slice(0, prefix));
}

/**
 * A record that was read. By it a later reader notices that the log has lost it, even if another record is at its
 * offset now.
 */
export interface LastRead {
  readonly offset: number;
  readonly timestampMs: number;
  /** Equal for equal records; letters, digits, `+`, `/` and `=` only. */
  readonly digest: string;
}

/** The time is the broker's, so a request that is sent again has another digest. */
export function readOf(record: {
  readonly offset: number;
  readonly timestampMs: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
}): LastRead {
  const { offset, timestampMs, key, value } = record;
  const hash = createHash('sha256').update(`${timestampMs} ${key?.length ?? -1} `);
  const digest = hash
    .update(key ?? '')
    .update(value ?? '')
    .digest('base64');
  return { offset, timestampMs, digest };
}

/** A position as it is committed, with the last record below `small`, if that is known. */
export interface CommittedPosition extends RequestPosition {
  readonly last?: LastRead | undefined;
}

const METADATA =
  /^\{(?:"small":(?<small>\d{1,16}))?,?(?:"last":\[(?<offset>\d{1,16}),(?<timestampMs>\d{1,16}),"(?<digest>[\w+/=]{1,64})"\])?(?:,?"debtors":(?<debtors>\[(?:\[\d{1,15}(?:,\d{1,16}){2},\d{1,3}\](?:,\[\d{1,15}(?:,\d{1,16}){2},\d{1,3}\]){0,31})?\]))?\}$/;

/**
 * The metadata of an offset that a worker commits. It is never empty: by it workers know their own commits. Where
 * anything waits it has `debtors`, if only an empty list: by it they know that nothing else waits.
 */
export function encodeMetadata({ next, small, last, debtors = [] }: CommittedPosition): string {
  return JSON.stringify({
    small,
    ...(last !== undefined && { last: [last.offset, last.timestampMs, last.digest] }),
    ...(next < small && { debtors: debtors.map(({ topic, from, until, prefix }) => [topic, from, until, prefix]) }),
  });
}

/**
 * The position that a worker committed; undefined for an offset that anything else has committed or moved, which says
 * nothing about what is answered. Such an offset has no metadata, or that of another kind, or it was moved past what a
 * worker wrote there. Earlier releases left out `small` where it is the offset. Workers of 0.3 do not know `debtors`:
 * from metadata that has them they read only that all is to be served from the offset on. They also let batches of many
 * records wait, which nobody finds out again, so after them everything from the offset up to `small` is served.
 */
export function decodePosition(next: number, metadata: string): CommittedPosition | undefined {
  const { small: written, offset, timestampMs, digest, debtors } = METADATA.exec(metadata)?.groups ?? {};
  const small = Number(written ?? next);
  if ((written ?? digest) === undefined || small < next) return undefined;
  const last = { offset: Number(offset), timestampMs: Number(timestampMs), digest: digest ?? '' };
  const isKnown = digest !== undefined && last.offset < small;
  return {
    next,
    small,
    last: isKnown ? last : undefined,
    debtors: next < small ? spansIn(debtors ?? `[[${EVERY_TOPIC},${next},${small},0]]`) : undefined,
  };
}

function spansIn(text: string): readonly DebtorSpan[] | undefined {
  const spans = JSON.parse(text) as readonly (readonly [number, number, number, number])[];
  return spans.length === 0 ? undefined : spans.map(([topic, from, until, prefix]) => ({ topic, from, until, prefix }));
}

/** The header of a ledger entry with what its writer had answered of the partition's requests when it wrote it. */
export const ANSWERED_HEADER = 'idalloc-answered';
const ANSWERED = /^(?<next>\d{1,16}) (?<metadata>\{.*\})$/;

/** The offset and the metadata, as they would be committed. */
export function encodeAnswered(position: CommittedPosition): string {
  return `${position.next} ${encodeMetadata(position)}`;
}

/** Undefined for anything that no worker wrote. */
export function decodeAnswered(text: string): CommittedPosition | undefined {
  const { next, metadata } = ANSWERED.exec(text)?.groups ?? {};
  return next === undefined || metadata === undefined ? undefined : decodePosition(Number(next), metadata);
}

/**
 * Where to read from when the committed offset is not a worker's, and a worker had answered so much before. Nothing is
 * passed over that nobody has answered, but an offset that was moved back is believed: an answer that is given again is
 * the same. Undefined, which is the start of the log, if nothing says what is answered.
 */
export function believable(offset: number, answered: CommittedPosition | undefined): CommittedPosition | undefined {
  return answered !== undefined && offset < answered.next ? { next: offset, small: offset } : answered;
}

/** The part of a record of the ledger by which it may be a statement about requests. */
interface StatingRecord {
  readonly offset: number;
  readonly key: Buffer | null;
  readonly headers?: RecordHeaders | undefined;
}

/**
 * The header of a statement of a replay: a record without key, whose value is EMPTY_MARKER, in the ledger partition of
 * the same number. It has two offsets. Every request below the first one had been answered when the offset of the group
 * was moved back; `0`: what was refused is decided after all. The second one is the end of the log for its writer: the
 * statement counts there alone, since an append that was made again may come behind a later statement. The last one in
 * log order that counts holds. Workers of 0.3 read it as a marker that says nothing.
 *
 * ANSWERED_HEADER does not say this: it rises by itself, and a log that has lost its tail has new requests at answered
 * offsets.
 */
export const REPLAY_HEADER = 'idalloc-replay';
const STATEMENT = /^(?<below>0|[1-9]\d{0,15}) (?<at>0|[1-9]\d{0,15})$/;

const EMPTY = { kind: 'marker', end: 0, through: -1 } as const;

/** The statement, to be appended alone at the offset `at` of the ledger. Throws RangeError unless both are offsets. */
export function replayRecord(
  below: number,
  at: number,
): {
  readonly key: null;
  readonly value: Buffer;
  readonly headers: { readonly [REPLAY_HEADER]: string };
  /** What the value says. */
  readonly entry: typeof EMPTY;
} {
  const said = `${below} ${at}`;
  if (decodeReplay(said) === undefined) throw new RangeError(`${said} is not two offsets`);
  return { key: null, value: EMPTY_MARKER, headers: { [REPLAY_HEADER]: said }, entry: EMPTY };
}

/** Undefined for anything but two offsets. */
function decodeReplay(text: string): { readonly below: number; readonly at: number } | undefined {
  const { below, at } = STATEMENT.exec(text)?.groups ?? {};
  const said = { below: Number(below), at: Number(at) };
  return Number.isSafeInteger(said.below) && Number.isSafeInteger(said.at) ? said : undefined;
}

/**
 * What a record of the ledger states about a replay: the offset below which every request was answered. Undefined if it
 * states nothing, or is not at its place. Throws LEDGER_UNREADABLE for a malformed statement.
 */
export function readReplay(record: StatingRecord): number | undefined {
  const replay = readStatement(record, REPLAY_HEADER, 'two offsets', decodeReplay);
  return replay?.at === record.offset ? replay.below : undefined;
}

/**
 * The header of the marker with which an operator adopts a ledger partition, which may be a copy that another request
 * topic belonged to. What the records before it say of request offsets says nothing of the topic there is now, all of
 * whose requests are covered by the marker. It has the end of the log for its writer, and counts there alone: so nobody
 * had decided anything meanwhile. Workers of 0.3 read it as a marker.
 */
export const ADOPTION_HEADER = 'idalloc-adopted';
const OFFSET = /^(?:0|[1-9]\d{0,15})$/;

/** The headers of an adoption, to be appended alone at the offset `at` of the ledger. */
export function adoptionHeaders(at: number): { readonly [ADOPTION_HEADER]: string } {
  return { [ADOPTION_HEADER]: String(at) };
}

/** Whether a record of the ledger is an adoption, and at its place. Throws LEDGER_UNREADABLE for a malformed one. */
export function isAdoption(record: StatingRecord): boolean {
  return readStatement(record, ADOPTION_HEADER, 'an offset', decodeOffset) === record.offset;
}

function decodeOffset(text: string): number | undefined {
  return OFFSET.test(text) ? Number(text) : undefined;
}

/** What a record without a key states in a header. Throws LEDGER_UNREADABLE if it can't be decoded. */
function readStatement<T>(
  { key, headers }: StatingRecord,
  header: string,
  what: string,
  decode: (text: string) => T | undefined,
): T | undefined {
  const said = key === null ? headers?.[header] : undefined;
  if (said === undefined) return undefined;
  const stated = typeof said === 'string' || Buffer.isBuffer(said) ? decode(said.toString()) : undefined;
  if (stated !== undefined) return stated;
  const message = `the header ${header} of a ledger record is not ${what}: another program writes to the ledger topic`;
  throw new IdallocError('LEDGER_UNREADABLE', message);
}
