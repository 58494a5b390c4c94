import type { IncomingMessage } from 'node:http';
import type { FastifyInstance } from 'fastify';
import type { FormName, FormSettings, OpenForm } from '../codec/form/form.ts';
import { FORMS, isFormName, openForm } from '../codec/form/forms.ts';
import { ID_TEXT_HELP, readId } from '../codec/id-text.ts';
import { type ErrorCode, IdallocError } from '../errors.ts';
import { headerValues, malformed, Problem } from './problem.ts';

const KEY = 'idempotency-key';
export const MAX_KEY_BYTES = 255;
/** What the codec throws for a request that the caller must change. */
const REFUSED: readonly ErrorCode[] = ['INVALID_ID', 'CONFIG_INVALID', 'MALFORMED_REQUEST'];
const PREFIXED: FormName = 'prefixed';

/** The unchecked query of a request. */
type Raw = Readonly<Record<string, unknown>>;

/** The query parameters of a form. */
export const FORM_PARAMETERS: readonly string[] = ['form', 'prefix'];

/** The form that a query selects. */
export interface RequestedForm extends OpenForm {
  /** True where a key hides the ID, and each takes tens of microseconds, not a few. */
  readonly keyed: boolean;
}

/**
 * The form that a query selects, with its `prefix`; undefined without one. Throws 400 MALFORMED_REQUEST for an unknown
 * form, for one that lacks a setting or can't hold the layout's IDs, and for a prefix without the form prefixed.
 */
export function formOf(
  query: Raw,
  settings: FormSettings,
  parameter: 'form' | 'as' = 'form',
): RequestedForm | undefined {
  const { [parameter]: name, prefix } = query;
  if (prefix !== undefined && query.form !== PREFIXED && query.as !== PREFIXED) {
    throw malformed(`prefix requires the form ${PREFIXED}`);
  }
  if (name === undefined) return undefined;
  if (typeof name !== 'string' || (prefix !== undefined && typeof prefix !== 'string')) {
    throw malformed(`${parameter} and prefix must be given once`);
  }
  return orMalformed(() => {
    const { format, parse } = openForm(name, { ...settings, prefix });
    return { format, parse, keyed: isFormName(name) && FORMS[name].needs.includes('keys') };
  });
}

/** The result of `work`. Throws 400 MALFORMED_REQUEST for what the form, the layout or the codec rejects. */
export function orMalformed<T>(work: () => T): T {
  try {
    return work();
  } catch (error) {
    const isRefusal = error instanceof IdallocError && REFUSED.includes(error.code);
    throw isRefusal || error instanceof RangeError ? malformed(error.message) : error;
  }
}

/** Most IDs for one request in a keyed form: they cost about as much as 100,000 in none. */
export const MAX_KEYED_IDS = 1_000;

/** The most IDs that a request for this form may have. */
export function maxCountIn(form: RequestedForm | undefined, maxCount: number): number {
  return form?.keyed === true ? Math.min(maxCount, MAX_KEYED_IDS) : maxCount;
}

/** How a response has its IDs: one by one with their fields, or as ranges. */
type IdsOrRanges = 'ids' | 'ranges';

/** `encoding` of a query, ids without one. Throws 400 MALFORMED_REQUEST for another one, and for ranges with a form. */
export function encodingOf({ encoding = 'ids', form }: Raw): IdsOrRanges {
  if (encoding !== 'ids' && encoding !== 'ranges') throw malformed('encoding must be given once, as ids or ranges');
  if (encoding === 'ranges' && form !== undefined) {
    throw malformed('encoding=ranges has no forms: leave out form, or use encoding=ids');
  }
  return encoding;
}

/**
 * `count` of a query, 1 without one. Throws 400 INVALID_COUNT, and 400 MALFORMED_REQUEST for a parameter of another
 * name.
 */
export function countParameter(query: Raw, maxCount: number): number {
  requireNoOthers(query, ['count', 'encoding', ...FORM_PARAMETERS]);
  return countOf(query, maxCount);
}

/** The count of a request, whatever other parameters there are. Throws Problem 400. */
export function countOf({ count: text }: Raw, maxCount: number): number {
  if (text === undefined) return 1;
  if (typeof text === 'string' && /^[1-9][0-9]{0,5}$/.test(text) && Number(text) <= maxCount) return Number(text);
  throw new Problem(400, `count must be given once, as an integer from 1 to ${maxCount}`, { code: 'INVALID_COUNT' });
}

/** Throws 400 MALFORMED_REQUEST for a parameter not in `names`, such as a misspelled one. */
export function requireNoOthers(query: Raw, names: readonly string[]): void {
  const other = Object.keys(query).find((name) => !names.includes(name));
  if (other === undefined) return;
  const known = names.length === 0 ? 'none is allowed here' : `allowed: ${names.join(', ')}`;
  throw malformed(`unknown query parameter '${other.slice(0, 50)}': ${known}`);
}

/** An ID in any notation that readId accepts. Throws 400 MALFORMED_REQUEST. */
export function idOf(text: string): bigint {
  const id = readId(text);
  if (id === undefined) throw malformed(`an ID must be ${ID_TEXT_HELP}`);
  return id;
}

/**
 * The bytes of the opaque Idempotency-Key, if any, as they were sent: Node decodes headers as Latin-1. Throws 400
 * MALFORMED_REQUEST for one that is empty, too long or repeated.
 */
export function requestKeyOf(request: IncomingMessage): Buffer | undefined {
  if (request.headers[KEY] === undefined) return undefined;
  const [key = '', ...others] = headerValues(request, KEY);
  if (others.length === 0 && key.length >= 1 && key.length <= MAX_KEY_BYTES) return Buffer.from(key, 'latin1');
  throw malformed(`Idempotency-Key must be given once, with 1 to ${MAX_KEY_BYTES} bytes`);
}

/**
 * Accepts a blank body of any type, since some clients always send a Content-Type, and `{}` as JSON. Others get 400 or
 * 415.
 */
export function takeBodies(app: FastifyInstance): void {
  app.removeAllContentTypeParsers();
  app.addContentTypeParser('*', { parseAs: 'string' }, (request, body, done) => {
    const text = String(body).trim();
    const isJson = /^application\/json\s*(;|$)/i.test(request.headers['content-type'] ?? '');
    if (text === '' || (isJson && /^\{\s*\}$/.test(text))) done(null, undefined);
    else done(isJson ? malformed(NO_BODY) : new Problem(415, NO_BODY));
  });
}

/** One text for both: whoever mends the type alone would only meet the other refusal. */
const NO_BODY =
  'parameters belong into the query, as in POST /api/v1/ids?count=3: send no body, or as application/json an empty object, {}';
