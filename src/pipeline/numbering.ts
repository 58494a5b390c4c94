import { type NumberRun, refusalOf, type SequenceRefusal, type SequenceRow, type Statement, statedOf } from '../core/sequence.ts';
import type { ErrorCode } from '../errors.ts';
import type { LedgerIndex } from '../ledger/ports.ts';
import type { Refused } from './decision.ts';
import type { Accepted } from './intake.ts';

type Rows = Pick<LedgerIndex, 'sequence'>;

/** Numbers for one request, and how readers write them. */
export interface Drafted extends NumberRun {
  readonly format: string;
}

/**
 * Numbers for the drafts of one append: the rows of its sequences when the keys were looked up, moved on by each draft. The
 * rows and the end of the index must be of one moment, that of the look-up; create it in the same synchronous step.
 */
export class Numbering {
  readonly #rows = new Map<string, SequenceRow | undefined>();

  constructor(index: Rows, partition: number, part: readonly { readonly accepted: Accepted }[]) {
    for (const { accepted } of part) {
      const { sequence } = accepted.request;
      if (sequence !== undefined) this.#rows.set(sequence, index.sequence(partition, sequence));
    }
  }

  /** Why a new request gets no numbers; undefined if it gets some. Takes none. */
  refuse(sequence: string, count: number): Refused | undefined {
    const known = statedOf(this.#rows.get(sequence));
    const code = refusalOf(known, count);
    if (code === undefined) return undefined;
    return { kind: 'refused', code, message: messageOf(code, sequence, known) };
  }

  /** The next numbers. Only for a request that was not refused. */
  take(sequence: string, count: number): Drafted {
    const row = this.#rows.get(sequence);
    if (row === undefined) throw new RangeError(`numbers of the unknown sequence ${sequence}`);
    const { next, step, format } = row.known;
    this.#rows.set(sequence, { ...row, known: { ...row.known, next: next + count * step } });
    return { first: next, count, step, format };
  }
}

/** The refusals that last until a statement. A closed sequence stays closed. */
const REVOCABLE: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['UNKNOWN_SEQUENCE', 'SEQUENCE_EXHAUSTED']);

/** Whether a decision is a refusal that a statement of the sequence ends: one that the index has not read yet may have done so. */
export function isRevocable(decision: Refused | { readonly kind: string } | undefined): boolean {
  return decision !== undefined && 'code' in decision && REVOCABLE.has(decision.code);
}

function messageOf(code: SequenceRefusal, sequence: string, known: Statement | undefined): string {
  switch (code) {
    case 'UNKNOWN_SEQUENCE':
      return `there is no sequence ${sequence}: create it with 'idalloc sequence create ${sequence}'`;
    case 'SEQUENCE_CLOSED':
      return `the sequence ${sequence} is closed and gives out no more numbers: use another one`;
    case 'SEQUENCE_EXHAUSTED':
      return `the sequence ${sequence} ends at ${known?.max} and continues at ${known?.next}: request fewer numbers, or raise its end with 'idalloc sequence redefine ${sequence} --max N'`;
  }
}
