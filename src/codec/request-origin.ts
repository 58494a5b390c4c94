import { IdallocError } from '../errors.ts';
import { type RecordHeaders, singleHeader } from './request-headers.ts';

/** Where and when a request was first appended: `partition/offset/append time`, in decimal digits. */
export const ORIGIN = 'idalloc-origin';
/** How often a request was forwarded to another partition: decimal digits. */
export const HOPS = 'idalloc-hops';
/** On a request that came with many others and was forwarded, so that it lets others go first there too: `1`. */
export const BULK = 'idalloc-bulk';
/** On a request that a client resends: when it was first sent, in milliseconds since 1970, decimal digits. */
export const FIRST_SENT = 'idalloc-first-sent';
/**
 * On a request that is forwarded, whose record had been answered before it was read this time: `1`. Who writes it by
 * hand gets what the ledger has, and nothing new.
 */
export const ANSWERED_BEFORE = 'idalloc-answered-before';

/** Where and when a request was first appended. Forwarding and resending keep it, so that its age is known. */
export interface Origin {
  readonly partition: number;
  readonly offset: number;
  /** By the broker's clock. */
  readonly appendedAtMs: number;
}

/** The route of a request, from its headers. */
export interface Route {
  /** Undefined if the record itself is the first one, according to its headers. */
  readonly origin: Origin | undefined;
  readonly hops: number;
  readonly firstSentMs: number | undefined;
  /** The record from which it was forwarded had been answered before, so nothing is decided for it any more. */
  readonly wasAnswered: boolean;
}

export const DIRECT_ROUTE: Route = Object.freeze({
  origin: undefined,
  hops: 0,
  firstSentMs: undefined,
  wasAnswered: false,
});

const ORIGIN_TEXT = /^([0-9]{1,9})\/([0-9]{1,15})\/([0-9]{1,15})$/;

/**
 * Throws MALFORMED_REQUEST for headers that neither workers nor clients of idalloc write: a request with an unreadable
 * age must not count as a recent one.
 */
export function readRoute(headers: RecordHeaders): Route {
  const origin = textOf(headers, ORIGIN);
  const hops = textOf(headers, HOPS);
  const firstSent = textOf(headers, FIRST_SENT);
  const wasAnswered = headers[ANSWERED_BEFORE] !== undefined;
  if (origin === undefined && hops === undefined && firstSent === undefined && !wasAnswered) return DIRECT_ROUTE;
  return {
    origin: origin === undefined ? undefined : parseOrigin(origin),
    hops: hops === undefined ? 0 : parseNumber(HOPS, hops, /^[0-9]{1,3}$/),
    firstSentMs: firstSent === undefined ? undefined : parseNumber(FIRST_SENT, firstSent, /^[0-9]{1,15}$/),
    wasAnswered,
  };
}

/**
 * The earliest time at which any record of the request may have been decided, in milliseconds; undefined for a first
 * one.
 */
export function earliestDecisionMs({ origin, firstSentMs }: Route): number | undefined {
  if (origin === undefined || firstSentMs === undefined) return origin?.appendedAtMs ?? firstSentMs;
  return Math.min(origin.appendedAtMs, firstSentMs);
}

/** Whether the record was forwarded with many others. Who writes the header by hand is only served later. */
export function isMarkedBulk(headers: RecordHeaders): boolean {
  return headers[BULK] !== undefined;
}

/**
 * Headers of a request that is forwarded: where it was first appended, how often it has been forwarded, and what its
 * home must know.
 */
export function routeHeaders(
  origin: Origin,
  hops: number,
  { isBulk, wasAnswered }: { readonly isBulk: boolean; readonly wasAnswered: boolean },
): Readonly<Record<string, string>> {
  const marks = { ...(isBulk && { [BULK]: '1' }), ...(wasAnswered && { [ANSWERED_BEFORE]: '1' }) };
  return { [ORIGIN]: originText(origin), [HOPS]: String(hops), ...marks };
}

export function originText({ partition, offset, appendedAtMs }: Origin): string {
  return `${partition}/${offset}/${appendedAtMs}`;
}

function parseOrigin(text: string): Origin {
  const [, partition, offset, appendedAtMs] = ORIGIN_TEXT.exec(text) ?? [];
  if (appendedAtMs === undefined) throw malformed(ORIGIN);
  return { partition: Number(partition), offset: Number(offset), appendedAtMs: Number(appendedAtMs) };
}

function parseNumber(header: string, text: string, shape: RegExp): number {
  if (!shape.test(text)) throw malformed(header);
  return Number(text);
}

function textOf(headers: RecordHeaders, header: string): string | undefined {
  return singleHeader(headers, header)?.toString('latin1');
}

function malformed(header: string): IdallocError {
  const remedy = 'it is written by workers and clients of idalloc: keep it unchanged, or remove it';
  return new IdallocError('MALFORMED_REQUEST', `header ${header} can't be read; ${remedy}`);
}
