import { wallMs } from '../../src/core/units.ts';
import { type ErrorCode, IdallocError } from '../../src/errors.ts';
import type { AskLedger, IssuedIds, IssuedNumbers, KeyedNumbers, KeyedRequest } from '../../src/http/ledger-issuer.ts';

const GENERATED_AT = wallMs(1_780_416_300_000);
const FIRST_ID = 55_325_805_773_398_016n;
/** IDs in a tick of the default layout. */
const TICK_IDS = 4_096;
/** From one tick's first ID to the next one's. */
const TICK = 1n << 22n;

/**
 * What a service gets from the workers' ledger: a key has what it got first. A test can hold it up, or make it refuse.
 */
export class FakeLedger implements AskLedger {
  readonly asked: (KeyedRequest & Partial<KeyedNumbers>)[] = [];
  refusal: { readonly code: ErrorCode; readonly message?: string; readonly retryAfterMs?: number } | undefined;
  /** Resolves when it may answer. */
  before: Promise<void> = Promise.resolve();
  /** How many IDs were decided. */
  decidedIds = 0;
  readonly #ids = new Map<string, Omit<IssuedIds, 'replayed'> & { readonly count: number }>();
  readonly #numbers = new Map<string, number>();
  #nextTick = 0n;
  #nextNumber = 1;

  async ids(request: KeyedRequest): Promise<IssuedIds> {
    await this.#admit(request);
    const key = request.key.toString('latin1');
    const known = this.#ids.get(key);
    if (known !== undefined && known.count !== request.count) throw conflict(request.count, known.count);
    const decided = known ?? { batch: this.#newBatch(request.count), count: request.count };
    this.#ids.set(key, decided);
    return { batch: decided.batch, replayed: known !== undefined };
  }

  async numbers(request: KeyedNumbers): Promise<IssuedNumbers> {
    await this.#admit(request);
    const { sequence, count, key, isLookUp } = request;
    const name = `${sequence} ${key.toString('latin1')}`;
    const known = this.#numbers.get(name);
    if (known === undefined && isLookUp) throw new IdallocError('EXPIRED', 'the request expired and has no numbers');
    const first = known ?? this.#nextNumber;
    if (known === undefined) this.#nextNumber += count * 2;
    this.#numbers.set(name, first);
    return { numbers: { first, count, step: 2, format: 'INV-{number:6}' }, replayed: known !== undefined };
  }

  async #admit(request: KeyedRequest): Promise<void> {
    this.asked.push(request);
    const { signal } = request;
    const gone = new Promise<never>((_, reject) => signal.addEventListener('abort', () => reject(signal.reason)));
    await Promise.race([this.before, gone]);
    const { code, message = 'the workers refuse it', ...details } = this.refusal ?? {};
    if (code !== undefined) throw new IdallocError(code, message, details);
  }

  #newBatch(count: number): IssuedIds['batch'] {
    this.decidedIds += count;
    const ranges: { first: bigint; count: number }[] = [];
    for (let left = count; left > 0; left -= TICK_IDS) {
      ranges.push({ first: FIRST_ID + this.#nextTick * TICK, count: Math.min(left, TICK_IDS) });
      this.#nextTick += 1n;
    }
    return { ranges, generatedAt: GENERATED_AT };
  }
}

/** As a worker says it of a request ID of HTTP. */
function conflict(here: number, there: number): IdallocError {
  const message = `this request ID was used for another request; it differs in count (here ${here}, there ${there}): use a new request ID`;
  return new IdallocError('CONFLICT', message);
}
