import type { Framing } from '../codec/framing.ts';
import { requestHash } from '../codec/ledger-entry.ts';
import { encodeLedgerKey, encodeNumbersKey } from '../codec/ledger-key.ts';
import { type ReplyPolicy, replyTopicViolation } from '../codec/reply-policy.ts';
import {
  decidingIdOf,
  type FullRequest,
  homeKeyOf,
  mergeRequest,
  type ReplyAddress,
  salvageAddress,
} from '../codec/request.ts';
import type { HeaderNames } from '../codec/request-headers.ts';
import { type ErrorCode, IdallocError } from '../errors.ts';
import { nameOf } from '../ledger/decided.ts';
import { fromConfluent } from './confluent.ts';
import type { RequestRecord, SchemaIds } from './ports.ts';

/** A request that can be looked up and served. */
export interface Accepted {
  readonly kind: 'accepted';
  readonly record: RequestRecord;
  readonly request: FullRequest;
  readonly key: Buffer;
  /** `nameOf` the key. */
  readonly name: string;
  /** The partition that decides it. */
  readonly home: number;
  readonly hash: Buffer;
}

/** A record that can't be served as it stands; the address is where an error reply may go, if anywhere. */
interface Rejected {
  readonly kind: 'rejected';
  readonly record: RequestRecord;
  readonly address: ReplyAddress;
  readonly code: ErrorCode;
  readonly message: string;
}

export type Intake = Accepted | Rejected;

/** Whether two requests have the same key, which is rare. */
export function hasTwins(part: readonly Accepted[]): boolean {
  return new Set(part.map(({ name }) => name)).size < part.length;
}

/** The dependencies of `receive`. */
export interface IntakeDeps {
  readonly names: HeaderNames;
  readonly replyPolicy: ReplyPolicy;
  readonly schemas?: SchemaIds | undefined;
  /** The home partition of what `homeKeyOf` returns. */
  readonly homeOf: (homeKey: Buffer) => number;
}

/**
 * Reads one record of the request topic. Total: any bytes yield a request or a rejection, so that no input ends the
 * process or blocks its partition.
 */
export function receive(record: RequestRecord, deps: IntakeDeps): Intake {
  // Nobody reads where a rejection was thrown, and finding that out is three quarters of its cost.
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0;
  try {
    return readIntake(record, deps);
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
}

function readIntake(record: RequestRecord, { names, replyPolicy: policy, schemas, homeOf }: IntakeDeps): Intake {
  let { value } = record;
  let framing: Framing = 'SINGLE_OBJECT';
  try {
    const unwrapped = fromConfluent(schemas, value);
    if (unwrapped !== undefined) {
      framing = 'CONFLUENT';
      value = unwrapped;
    }
    const merged = mergeRequest(value, record.headers, names);
    const request = unwrapped === undefined ? merged : { ...merged, framing };
    const refusal = replyTopicViolation(request.replyTopic, policy);
    if (refusal !== undefined) return reject(record, {}, 'INVALID_REPLY_TOPIC', refusal);
    if (request.sequence !== undefined && framing === 'CONFLUENT' && schemas?.numbersReplyId() === undefined)
      return reject(record, request, 'UNKNOWN_SCHEMA', NO_REPLY_SCHEMA);
    const hash = requestHash(request.count, request.replyTopic);
    const key = ledgerKeyOf(request);
    const home = homeOf(homeKeyOf(request));
    return { kind: 'accepted', record, request, key, name: nameOf(key), home, hash };
  } catch (error) {
    const { code, message } = rejectionOf(error);
    // The request may be served when it is sent again, so it must not get an error reply now.
    if (code === 'SCHEMA_REGISTRY_UNAVAILABLE') return reject(record, {}, code, message);
    const address = { ...salvageAddress(value, record.headers, names), framing };
    const isReplyAllowed =
      address.replyTopic !== undefined && replyTopicViolation(address.replyTopic, policy) === undefined;
    return reject(record, isReplyAllowed ? address : {}, code, message);
  }
}

function reject(record: RequestRecord, address: ReplyAddress, code: ErrorCode, message: string): Rejected {
  return { kind: 'rejected', record, address, code, message };
}

function ledgerKeyOf(request: FullRequest): Buffer {
  const { sequence } = request;
  return sequence === undefined
    ? encodeLedgerKey(decidingIdOf(request))
    : encodeNumbersKey(sequence, decidingIdOf(request));
}

const NO_REPLY_SCHEMA =
  'the registry has no schema for replies with numbers of a sequence: run `idalloc topics init` of this version, then send the request again';

/** Decoding is pure, so any error is caused by the record and would recur. */
function rejectionOf(error: unknown): { code: ErrorCode; message: string } {
  if (error instanceof IdallocError) return { code: error.code, message: error.message };
  return { code: 'MALFORMED_REQUEST', message: error instanceof Error ? error.message : String(error) };
}
