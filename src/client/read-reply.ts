import { countIds, expandIds, type IdBatch } from '../codec/id-batch.ts';
import { decodeIdReply, type IdReply } from '../codec/id-reply.ts';
import type { Numbers } from '../codec/sequence-entry.ts';
import { type ErrorCode, unlessInvalid } from '../errors.ts';
import { RequestRefused } from './refusals.ts';
import type { IncomingReply } from './transport.ts';

/** What a reply is compared with. */
export interface Asked {
  readonly correlationId: Buffer;
  readonly count: number;
  readonly sequence?: string | undefined;
}

export type Content = { readonly batch: IdBatch } | { readonly numbers: Numbers };

/** What a record under the correlation ID of a request is to it. */
export type ReplyReading =
  | { readonly kind: 'content'; readonly content: Content }
  | { readonly kind: 'refusal'; readonly refusal: RequestRefused }
  | Foreign;

/** Nobody has answered the request yet: its own answer may still come. */
export interface Foreign {
  readonly kind: 'foreign';
  /** One of few texts. */
  readonly what: string;
  /** False for what others do as they should: the record answers another request. */
  readonly isFault: boolean;
}

/**
 * What a record means for the request that waits under its correlation ID. Anyone who may write to the reply topic may
 * send one, so that what can't be its answer must not end it: what another client on this reply topic gets of something
 * else, what a replay refuses because it was refused before, and what no worker sends.
 */
export function readReply(
  asked: Asked,
  { value, retryAfterMs }: Pick<IncomingReply, 'value' | 'retryAfterMs'>,
): ReplyReading {
  const { correlationId, count, sequence } = asked;
  const reply = unlessInvalid(() => decodeIdReply(value));
  if (reply === undefined) return fault('no readable reply');
  if (!reply.correlationId.equals(correlationId)) return fault('a reply to another correlation ID than its key');
  if ('error' in reply) {
    const { code, message } = reply.error;
    if (code === ('ANSWERED_BEFORE' satisfies ErrorCode)) return another('a refusal of an earlier record');
    return { kind: 'refusal', refusal: new RequestRefused(code, message, { retryAfterMs }) };
  }
  if (('batch' in reply ? undefined : reply.numbers.sequence) !== sequence) return another(kindOf(reply));
  const got = 'batch' in reply ? countIds(reply.batch.ranges) : reply.numbers.count;
  if (got !== count) return another('another count');
  if ('batch' in reply && repeatsIds(reply.batch)) return fault('a batch with an ID twice');
  return { kind: 'content', content: reply };
}

function fault(what: string): Foreign {
  return { kind: 'foreign', what, isFault: true };
}

function another(what: string): Foreign {
  return { kind: 'foreign', what, isFault: false };
}

function kindOf(reply: IdReply): string {
  return 'batch' in reply ? 'IDs in place of numbers' : 'numbers of another sequence, or in place of IDs';
}

/** Workers list ranges in rising order, so that what they send is read through once. */
function repeatsIds({ ranges, step }: IdBatch): boolean {
  let endsAt = -1n;
  for (const { first, count } of ranges) {
    if (first <= endsAt) return new Set(expandIds({ ranges, step })).size < countIds(ranges);
    endsAt = first + BigInt(count - 1) * step;
  }
  return false;
}
