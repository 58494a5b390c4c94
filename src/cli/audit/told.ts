import { idsIn } from './evidence.ts';
import type { FoundAnswer, FoundBatch, FoundDeath, FoundRequest } from './found.ts';
import type { BatchLocation } from './location.ts';

/** Replies with a batch or with numbers that have so many. */
interface ToldCount {
  readonly partitions: Set<number>;
  readonly location: BatchLocation;
}

interface ToldError {
  readonly firstMs: number;
  readonly lastMs: number;
  readonly location: BatchLocation;
}

/** Codes of errors are not limited to ours. */
const MAX_CODES = 100;
/** Refusals that only requests for numbers get. */
const OF_SEQUENCES = /SEQUENCE/;

/** What the requests of one address were told: those under one ID, with one correlation ID, whose replies go to one topic. */
export class Told {
  readonly #counts = new Map<string, ToldCount>();
  readonly #errors = new Map<string, ToldError>();
  readonly #deaths = new Map<string, string>();
  /** By kind, how many the requests want; undefined if they want different ones. */
  readonly #wanted = new Map<string, number | undefined>();

  reply(found: FoundBatch | FoundAnswer): void {
    if (found.kind === 'answer' && found.code !== undefined) {
      const known = this.#errors.get(found.code);
      if (known === undefined && this.#errors.size >= MAX_CODES) return;
      this.#errors.set(found.code, {
        location: found,
        firstMs: Math.min(found.timeMs, known?.firstMs ?? found.timeMs),
        lastMs: Math.max(found.timeMs, known?.lastMs ?? found.timeMs),
      });
      return;
    }
    const name = found.kind === 'answer' ? nameOf(found.sequence, found.count) : nameOf(undefined, idsIn(found.ranges));
    const known = this.#counts.get(name);
    if (known === undefined) this.#counts.set(name, { partitions: new Set([found.partition]), location: found });
    else known.partitions.add(found.partition);
  }

  letter({ count, code }: FoundDeath): void {
    this.#deaths.set(String(count), code);
  }

  request({ sequence = '', count }: FoundRequest): void {
    if (!this.#wanted.has(sequence)) this.#wanted.set(sequence, count);
    else if (this.#wanted.get(sequence) !== count) this.#wanted.set(sequence, undefined);
  }

  /** Requests of this kind want different counts, so a CONFLICT may be about any but one. */
  wantsDiffer({ sequence = '' }: FoundRequest): boolean {
    return this.#wanted.get(sequence) === undefined;
  }

  /** The replies that have what a request wants. */
  given({ sequence, count }: FoundRequest): ToldCount | undefined {
    return this.#counts.get(nameOf(sequence, count));
  }

  /** A reply with IDs, or with numbers of its sequence, of which a request wants another count. */
  other({ sequence }: FoundRequest): BatchLocation | undefined {
    const prefix = nameOf(sequence, undefined);
    for (const [name, { location }] of this.#counts) if (name.startsWith(prefix)) return location;
    return undefined;
  }

  /** Requests that are equal share a dead letter, as they share a reply. */
  isDead({ count }: FoundRequest): boolean {
    return this.#deaths.has(String(count));
  }

  /** The errors that a request may have been told. */
  errors({ sequence }: FoundRequest): ReadonlyMap<string, ToldError> {
    if (sequence !== undefined) return this.#errors;
    return new Map([...this.#errors].filter(([code]) => !OF_SEQUENCES.test(code)));
  }

  get hasConflict(): boolean {
    return this.#errors.has('CONFLICT');
  }
}

function nameOf(sequence: string | undefined, count: number | undefined): string {
  return `${sequence ?? ''} ${count ?? ''}`;
}
