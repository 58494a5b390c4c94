import type { Decision } from './decision.ts';
import type { Accepted } from './intake.ts';
import type { RequestRecord } from './ports.ts';

/** A request for numbers, and its place in the part. */
export interface NumbersRequest {
  readonly at: number;
  readonly accepted: Accepted;
  readonly sequence: string;
}

/** Requests for numbers of one partition that are decided together, and what is decided of them so far. */
export class NumbersPart {
  readonly partition: number;
  readonly #all: readonly NumbersRequest[];
  readonly #decisions: (Decision | undefined)[];
  #mustCatchUp = false;
  #isConfirmed = false;

  constructor(partition: number, requests: readonly Accepted[]) {
    this.partition = partition;
    this.#decisions = new Array<Decision | undefined>(requests.length);
    this.#all = requests.map((accepted, at) => {
      const { sequence } = accepted.request;
      if (sequence === undefined) throw new RangeError('a request for IDs among those for numbers');
      return { at, accepted, sequence };
    });
  }

  /** The requests that are not decided yet, in order. */
  get due(): readonly NumbersRequest[] {
    return this.#all.filter(({ at }) => this.#decisions[at] === undefined);
  }

  get isDecided(): boolean {
    return this.#all.every(({ at }) => this.#decisions[at] !== undefined);
  }

  decide({ at }: NumbersRequest, decision: Decision): void {
    this.#decisions[at] = decision;
  }

  decisions(): Decision[] {
    if (!this.isDecided) throw new RangeError('a request for numbers was not decided');
    return this.#decisions as Decision[];
  }

  /** The requests with their decisions, as far as there are any. */
  *decided(): Iterable<readonly [NumbersRequest, Decision]> {
    for (const request of this.#all) {
      const decision = this.#decisions[request.at];
      if (decision !== undefined) yield [request, decision];
    }
  }

  /** The names of the sequences that are due. */
  sequences(): Set<string> {
    return new Set(this.due.map(({ sequence }) => sequence));
  }

  records(): readonly RequestRecord[] {
    return this.due.map(({ accepted }) => accepted.record);
  }

  /** The head was read; whoever looks next must have read the ledger to its end. */
  hasReadHead(): void {
    this.#mustCatchUp = true;
  }

  get mustCatchUp(): boolean {
    return this.#mustCatchUp;
  }

  /** The ledger was read to its end, after the head. */
  hasCaughtUp(): void {
    this.#mustCatchUp = false;
    this.#isConfirmed = true;
  }

  /**
   * Head and ledger were read since the part was received. So whatever an operator's command had done before then is
   * known.
   */
  get isConfirmed(): boolean {
    return this.#isConfirmed;
  }
}
