import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type ApiRight, mayNumber } from '../codec/api-tokens.ts';
import type { FormKeys } from '../codec/form/keys.ts';
import { viewId } from '../codec/id-view.ts';
import { checkSequence } from '../codec/request-checks.ts';
import { formatNumber, numbersOf } from '../codec/sequence-format.ts';
import type { Layout } from '../core/layout.ts';
import type { Caller } from './callers.ts';
import { firstIdOf, idBody, idsBody, lastIdOf, rangesBody } from './id-body.ts';
import type { Allocated, Issuer } from './issuer.ts';
import type { IssuedIds, IssuedNumbers, LedgerIssuer } from './ledger-issuer.ts';
import type { LoopShare } from './loop-share.ts';
import {
  countOf,
  countParameter,
  encodingOf,
  FORM_PARAMETERS,
  formOf,
  idOf,
  maxCountIn,
  orMalformed,
  type RequestedForm,
  requestKeyOf,
  requireNoOthers,
} from './parameters.ts';
import { malformed, Problem } from './problem.ts';
import { JSON_TYPE, limitResponse, respond, untilGone } from './respond.ts';

export interface IdRoutesOptions {
  readonly layout: Layout;
  /** Maximum count of one request. */
  readonly maxCount: number;
  readonly issuer: Issuer;
  /** Undefined: no Idempotency-Key, and no numbers of sequences. */
  readonly ledger?: LedgerIssuer | undefined;
  readonly share: LoopShare;
  /** The current keys of the keyed forms, if any. */
  readonly formKeys?: (() => FormKeys) | undefined;
}

type CallerOf = (request: FastifyRequest) => Caller;

const IDS = '/api/v1/ids';
const ID = '/api/v1/id';
const DECODE = '/api/v1/ids/:id';

/** The routes for IDs whose responses may be long. */
export function addIdRoutes(app: FastifyInstance, options: IdRoutesOptions, callerOf: CallerOf): void {
  const { layout, maxCount, issuer, share } = options;
  const settings = () => ({ layout, keys: options.formKeys?.() });
  /** What a request for IDs asks for, checked. */
  const wanted = (request: FastifyRequest) => {
    const query = request.query as Record<string, unknown>;
    const form = formOf(query, settings());
    const encoding = encodingOf(query);
    return {
      form,
      encoding,
      count: countParameter(query, maxCountIn(form, maxCount)),
      key: requestKeyOf(request.raw),
    };
  };
  const newIds = async (request: FastifyRequest, reply: FastifyReply) => {
    const { form, encoding, count, key } = wanted(request);
    const caller = callerOf(request);
    const { batch, replayed } = await idsFor(options, caller, { count, key }, reply);
    if (form !== undefined) requireHeld(form, batch, layout);
    const body =
      encoding === 'ranges' ? rangesBody(layout, batch) : idsBody(layout, batch, share.of(caller.name), form);
    if (typeof body !== 'string') limitResponse(reply);
    return respond(reply, replayed, body);
  };
  app.get(IDS, newIds);
  app.post(IDS, newIds);
  app.head(IDS, async (request, reply) => {
    // With a key another worker decides, so that this one's gate does not matter.
    if (wanted(request).key === undefined) issuer.requireOpen();
    else requireLedger(options);
    return reply.header('cache-control', 'no-store').type(JSON_TYPE).send(); // no body, so no length of one
  });
  app.get<{ Params: { id: string } }>(DECODE, { exposeHeadRoute: true }, async (request, reply) => {
    const { name, rights } = callerOf(request);
    issuer.countDecoded(name);
    const query = request.query as Record<string, unknown>;
    requireNoOthers(query, [...FORM_PARAMETERS, 'as']);
    const form = formOf(query, settings());
    const as = formOf(query, settings(), 'as') ?? form;
    if (form?.keyed || as?.keyed) requireRight(rights);
    const { id: text } = request.params;
    const view = orMalformed(() => viewId(layout, form === undefined ? idOf(text) : form.parse(text), as?.format));
    return respond(reply, false, JSON.stringify(view));
  });
}

/** The route for one ID, whose responses are too short to be compressed. */
export function addIdRoute(app: FastifyInstance, options: IdRoutesOptions, callerOf: CallerOf): void {
  const { layout, formKeys } = options;
  app.post(ID, async (request, reply) => {
    const query = request.query as Record<string, unknown>;
    requireNoOthers(query, FORM_PARAMETERS);
    const form = formOf(query, { layout, keys: formKeys?.() });
    const wanted = { count: 1, key: requestKeyOf(request.raw) };
    const { batch, replayed } = await idsFor(options, callerOf(request), wanted, reply);
    const value = form && orMalformed(() => form.format(firstIdOf(batch)));
    return respond(reply, replayed, idBody(layout, batch, value));
  });
}

/** With a key the ledger decides, as for a service; without one they come from memory, and nothing records them. */
async function idsFor(
  options: IdRoutesOptions,
  caller: Caller,
  { count, key }: { readonly count: number; readonly key: Buffer | undefined },
  reply: FastifyReply,
): Promise<IssuedIds> {
  if (key === undefined) return { batch: await options.issuer.issue(caller.name, count), replayed: false };
  return await requireLedger(options).ids(caller, { count, key, signal: untilGone(reply) });
}

/** Throws 501: a key that only this process knew would not mean what it says. */
function requireLedger({ ledger }: IdRoutesOptions): LedgerIssuer {
  if (ledger !== undefined) return ledger;
  throw new Problem(
    501,
    'this worker takes no Idempotency-Key: set API_REPLY_TOPIC on it, or send the request without',
  );
}

/** Checks the first and last ID, since a body in progress can't become an error. Throws 400 MALFORMED_REQUEST. */
function requireHeld(form: RequestedForm, batch: Allocated, layout: Layout): void {
  for (const id of [firstIdOf(batch), lastIdOf(batch, layout)]) orMalformed(() => form.format(id));
}

/** Whoever may convert any ID can compute the keyed forms of others' IDs. Throws 403. */
function requireRight(rights: readonly ApiRight[]): void {
  if (rights.includes('keyed-decode')) return;
  const detail =
    "decoding keyed forms needs a token with the right 'keyed-decode': add it to the token's line in API_TOKEN";
  throw new Problem(403, detail);
}

/** A name may have slashes, so it is the rest of the path. */
export const SEQUENCES = '/api/v1/sequences/*';
/** Most numbers of one response, so that it is one small piece. */
export const MAX_NUMBERS = 1_000;

interface Named {
  readonly Params: { readonly '*': string };
}

/**
 * Adds the routes for numbers of sequences: POST takes them, GET reads those that a key has. Without an issuer they
 * answer 501.
 */
export function addSequenceRoute(
  app: FastifyInstance,
  issuer: LedgerIssuer | undefined,
  callerOf: (request: FastifyRequest) => Caller,
): void {
  const answer = async (request: FastifyRequest<Named>, reply: FastifyReply, isLookUp: boolean) => {
    const caller = callerOf(request);
    if (issuer === undefined)
      throw new Problem(501, 'this worker serves no sequences over HTTP: set API_REPLY_TOPIC on it');
    const sequence = orMalformed(() => checkSequence(request.params['*']));
    if (!mayNumber(caller.rights, sequence)) throw forbidden(sequence);
    const query = request.query as Record<string, unknown>;
    requireNoOthers(query, ['count']);
    const count = countOf(query, MAX_NUMBERS);
    const key = requestKeyOf(request.raw);
    if (key === undefined) throw noKey();
    const issued = await issuer.numbers(caller, { sequence, count, key, isLookUp, signal: untilGone(reply) });
    return respond(reply, issued.replayed, numbersBody(sequence, issued));
  };
  app.post<Named>(SEQUENCES, (request, reply) => answer(request, reply, false));
  app.get<Named>(SEQUENCES, { exposeHeadRoute: true }, (request, reply) => answer(request, reply, true));
}

function numbersBody(sequence: string, { numbers }: IssuedNumbers): string {
  const { first, count, step, format } = numbers;
  const texts = numbersOf(numbers).map((number) => formatNumber(format, number));
  return JSON.stringify({ sequence, numbers: texts, first, count, step });
}

function noKey(): Problem {
  return malformed(
    'Idempotency-Key is required: the ID of the document that gets the numbers. The same one gets the same numbers again; without it, a retry would leave a gap',
  );
}

/** Checked before anything is asked, so that it says nothing about which sequences there are. */
function forbidden(sequence: string): Problem {
  const right = `sequences:${sequence}`;
  return new Problem(
    403,
    `numbers of this sequence need a token with the right '${right}', or one for a prefix of its name: add it to the token's line in API_TOKEN`,
  );
}
