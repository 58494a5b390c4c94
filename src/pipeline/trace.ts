import type { ErrorCode } from '../errors.ts';
import type { Answer } from './decision.ts';
import type { Accepted, Intake } from './intake.ts';
import type { RequestRecord } from './ports.ts';

/** A step of the answer to a part. `allocate`: taking the IDs of large requests before the partition's turn. */
export type TracedStep = 'allocate' | 'decide' | 'swap' | 'append' | 'reply' | 'forward';

/** One try to answer a part. Nothing here throws. */
export interface PartTrace {
  /** Does a step, and passes on its outcome. `of`: the requests for which it is done; called only if they matter. */
  step<T>(step: TracedStep, of: () => readonly RequestRecord[], work: () => Promise<T>): Promise<T>;
  /** The part is decided: an answer for each accepted request, in order. */
  answered(accepted: readonly Accepted[], answers: readonly Answer[]): void;
  refused(record: RequestRecord, code: ErrorCode): void;
}

/** Follows one try to answer a part of received records. Settles as `work` does. */
export type TracePart = (part: readonly Intake[], work: (trace: PartTrace) => Promise<void>) => Promise<void>;

/** Follows parts for traces. */
export interface Tracing {
  /** Records of a partition are about to be decoded and cut into parts. */
  received(partition: number): TracePart;
}

const UNTRACED_PART: PartTrace = { step: (_step, _of, work) => work(), answered: () => {}, refused: () => {} };
const withoutTrace: TracePart = (_part, work) => work(UNTRACED_PART);

/** For a worker without traces: does nothing but the work. */
export const UNTRACED: Tracing = { received: () => withoutTrace };
