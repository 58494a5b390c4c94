import type { FastifyInstance, FastifyRequest } from 'fastify';
import { mayNumber } from '../codec/api-tokens.ts';
import { checkSequence } from '../codec/request-checks.ts';
import { formatNumber, numbersOf } from '../codec/sequence-format.ts';
import type { Caller } from './callers.ts';
import type { NumberIssuer, TakenNumbers } from './number-issuer.ts';
import { countOf, orMalformed, requestKeyOf, requireNoOthers } from './parameters.ts';
import { malformed, Problem } from './problem.ts';
import { send } from './respond.ts';

/** A name may have slashes, so it is the rest of the path. */
export const SEQUENCES = '/api/v1/sequences/*';
/** Most numbers of one response, so that it is one small piece. */
export const MAX_NUMBERS = 1_000;
/** Its connection is closed, so nobody reads it. */
const GONE = new Problem(499, 'the caller has closed the connection');

/** Adds the route for numbers of sequences; without an issuer it answers 501. */
export function addSequenceRoute(
  app: FastifyInstance,
  issuer: NumberIssuer | undefined,
  callerOf: (request: FastifyRequest) => Caller,
): void {
  app.post<{ Params: { '*': string } }>(SEQUENCES, async (request, reply) => {
    const { name: caller, rights } = callerOf(request);
    if (issuer === undefined)
      throw new Problem(501, 'this worker serves no sequences over HTTP: set API_REPLY_TOPIC on it');
    const sequence = orMalformed(() => checkSequence(request.params['*']));
    if (!mayNumber(rights, sequence)) throw forbidden(sequence);
    const query = request.query as Record<string, unknown>;
    requireNoOthers(query, ['count']);
    const count = countOf(query, MAX_NUMBERS);
    const key = requestKeyOf(request.raw);
    if (key === undefined) throw noKey();
    const gone = new AbortController();
    reply.raw.once('close', () => gone.abort(GONE));
    // Node decodes headers as Latin-1; this returns the bytes that were sent.
    const taken = await issuer.take(caller, { sequence, count, key: Buffer.from(key, 'latin1'), signal: gone.signal });
    return send(reply, taken.replayed, body(sequence, taken));
  });
}

function body(sequence: string, { numbers }: TakenNumbers): string {
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
