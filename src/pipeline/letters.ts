import type { ErrorCode } from '../errors.ts';
import type { JunkLimits } from './junk-limits.ts';
import { deadLetter, type OutgoingContext, rangeLetter } from './outgoing.ts';
import type { OutgoingRecord, RequestRecord } from './ports.ts';

/** A record that can't be served as it stands. */
export interface Rejection {
  readonly record: RequestRecord;
  readonly code: ErrorCode;
  readonly message: string;
}

/** A dead letter, and how many records it stands for. */
export interface OutgoingLetter {
  readonly outgoing: OutgoingRecord;
  readonly code: ErrorCode;
  readonly records: number;
}

export interface LetterContext extends OutgoingContext {
  readonly junk: JunkLimits;
}

/**
 * The dead letters for the rejected records of a part, each of which is in exactly one: in its own while its code is
 * below the rate, else with the others of its code. So a range never reaches beyond its part, and is acknowledged with
 * it.
 */
export function lettersFor(
  context: LetterContext,
  partition: number,
  rejections: readonly Rejection[],
): OutgoingLetter[] {
  const shared = new Map<ErrorCode, Rejection[]>();
  const letters: OutgoingLetter[] = [];
  const addOwn = (rejection: Rejection) => {
    const outgoing = deadLetter(rejection.record, partition, rejection, context);
    letters.push({ outgoing, code: rejection.code, records: 1 });
  };
  for (const rejection of rejections) {
    const { code } = rejection;
    const others = shared.get(code);
    if (others !== undefined) others.push(rejection);
    else if (context.junk.takeLetter(partition, code)) addOwn(rejection);
    else shared.set(code, [rejection]);
  }
  for (const [code, same] of shared) {
    if (same.length === 1) same.forEach(addOwn);
    else letters.push({ outgoing: rangeLetter(same, partition, context), code, records: same.length });
  }
  return letters;
}
