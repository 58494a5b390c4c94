import type { PendingNumbers } from '../codec/head-values.ts';
import { WIDE_REPLY_FINGERPRINT } from '../codec/id-reply.ts';
import { unknownSequenceText } from '../codec/refusal-texts.ts';
import { type Definition, refusalOf, type Statement } from '../core/sequence-row.ts';
import type { ErrorCode } from '../errors.ts';
import type { HeadChange } from '../ledger/heads.ts';
import { definitionNow, draftChange, type HeadsView, isStopped } from '../ledger/sequence-rule.ts';
import { isCopy } from './age.ts';
import { charged } from './charges.ts';
import type { Refused } from './decision.ts';
import type { Accepted } from './intake.ts';
import type { NumbersPart, NumbersRequest } from './numbers-part.ts';
import { type RulingDeps, refusedUnknown } from './rulings.ts';

/** What a look at requests without a decision leads to. */
export interface DraftedNumbers {
  /** Their numbers, to be swapped in; undefined if none gets any. */
  readonly change: HeadChange | undefined;
  /** The requests that get none, unless something changes before they are told so. */
  readonly refused: ReadonlyMap<NumbersRequest, Refused>;
}

/** A request that gets numbers. */
interface Draft {
  readonly accepted: Accepted;
  readonly sequence: string;
  readonly numbers: { readonly first: number; readonly count: number } & Pick<
    Definition,
    'step' | 'format' | 'edition'
  >;
  /** The highest offset of its copies in the part, as a producer's retry writes them: its record covers them all. */
  through: number;
}

/** The refusals that depend neither on etcd nor on what else is given out. They are not confirmed. */
const AT_ONCE: ReadonlySet<ErrorCode> = new Set<ErrorCode>(['FORGOTTEN', 'ANSWERED_BEFORE', 'QUOTA_EXCEEDED']);

/**
 * The next numbers for the requests that are due, in order, and who gets none. Whoever is refused for what is known of
 * the ledger alone, or by a quota, is told so at once. A request is charged once, however often it is drafted.
 */
export function draftNumbers(deps: RulingDeps, part: NumbersPart, view: HeadsView): DraftedNumbers {
  const drafts = new Map<string, Draft>();
  const refused = new Map<NumbersRequest, Refused>();
  const sequences = new Map<string, Sequence>();
  for (const request of part.due) {
    const { accepted, sequence } = request;
    const twin = drafts.get(accepted.name);
    if (twin !== undefined) {
      if (twin.accepted.hash.equals(accepted.hash) && isCopy(accepted, twin)) twin.through = accepted.record.offset;
      continue;
    }
    const known = sequences.get(sequence) ?? sequenceIn(view, sequence);
    sequences.set(sequence, known);
    const { count } = accepted.request;
    const refusal =
      refusedUnknown(deps, part.partition, accepted) ??
      refusedBy(sequence, known, count) ??
      charged(deps, part.partition, accepted); // Last, because passing takes from the quota.
    if (refusal !== undefined) {
      if (AT_ONCE.has(refusal.code)) part.decide(request, refusal);
      else refused.set(request, refusal);
      continue;
    }
    const { next: first, step, format, edition } = known as Statement;
    sequences.set(sequence, { ...(known as Statement), next: first + count * step });
    const through = accepted.record.offset;
    drafts.set(accepted.name, { accepted, sequence, numbers: { first, count, step, format, edition }, through });
  }
  const through = Math.max(-1, ...[...drafts.values()].map((draft) => draft.through));
  const change = drafts.size === 0 ? undefined : draftChange(view, [...drafts.values()].map(pendingOf), through);
  return { change, refused };
}

/** What the next request of a sequence meets. */
type Sequence = Statement | 'stopped' | undefined;

function sequenceIn(view: HeadsView, name: string): Sequence {
  if (isStopped(view, name)) return 'stopped';
  const definition = definitionNow(view, name);
  const next = view.row(name)?.known.next;
  return definition && next !== undefined ? { ...definition, next } : undefined;
}

function pendingOf({ accepted, sequence, numbers, through }: Draft): PendingNumbers {
  const { request, hash, key } = accepted;
  const { first, count, step, format, edition } = numbers;
  const entry = {
    kind: 'numbers',
    requestHash: hash,
    replyTopic: request.replyTopic,
    requestOffset: through,
    framing: request.framing,
    schemaFingerprint: WIDE_REPLY_FINGERPRINT,
    ...{ first, count, step, format },
  } as const;
  return { kind: 'numbers', sequence, key, edition, entry };
}

/** Why a new request gets no numbers of a sequence; undefined if it gets some. */
function refusedBy(name: string, known: Sequence, count: number): Refused | undefined {
  if (known === 'stopped') return { kind: 'refused', code: 'SEQUENCE_STOPPED', message: stoppedText(name) };
  const code = refusalOf(known, count);
  return code && { kind: 'refused', code, message: messageOf(code, name, known) };
}

function stoppedText(name: string): string {
  return `the ledger contradicts what etcd holds of the sequence ${name}, so one of them has lost its memory: numbers go on after an operator has stopped all workers and run 'idalloc namespace rebuild'`;
}

function messageOf(
  code: NonNullable<ReturnType<typeof refusalOf>>,
  name: string,
  known: Statement | undefined,
): string {
  switch (code) {
    case 'UNKNOWN_SEQUENCE':
      return unknownSequenceText(name);
    case 'SEQUENCE_CLOSED':
      return `the sequence ${name} is closed and gives out no more numbers: use another one`;
    case 'SEQUENCE_EXHAUSTED':
      return `the sequence ${name} ends at ${known?.max} and continues at ${known?.next}: request fewer numbers, or raise its end with 'idalloc sequence redefine ${name} --max N'`;
  }
}
