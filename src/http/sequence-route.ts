import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { mayNumber } from '../codec/api-tokens.ts';
import { checkSequence } from '../codec/request-checks.ts';
import { formatNumber, numbersOf } from '../codec/sequence-format.ts';
import type { Caller } from './callers.ts';
import type { IssuedNumbers, LedgerIssuer } from './ledger-issuer.ts';
import { countOf, orMalformed, requestKeyOf, requireNoOthers } from './parameters.ts';
import { malformed, Problem } from './problem.ts';
import { send, untilGone } from './respond.ts';

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
    return send(reply, issued.replayed, body(sequence, issued));
  };
  app.post<Named>(SEQUENCES, (request, reply) => answer(request, reply, false));
  app.get<Named>(SEQUENCES, { exposeHeadRoute: true }, (request, reply) => answer(request, reply, true));
}

function body(sequence: string, { numbers }: IssuedNumbers): string {
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
