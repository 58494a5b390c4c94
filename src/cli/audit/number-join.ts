import type { NumberRun } from '../../core/sequence.ts';
import type { Finding } from './check.ts';
import type { Losses } from './lost.ts';
import type { FoundNumbers } from './number-store.ts';

interface JoinOptions {
  /** Replies of this time or later must have their decision in the ledger. */
  readonly ledgerReachesMs: number;
  readonly losses: Pick<Losses, 'has'>;
  readonly find: (finding: Finding) => void;
}

/**
 * Checks that each correlation ID has one record that counts in each sequence, and that the replies have its numbers, or such as the
 * ledger has lost. Numbers come in groups, as NumberStore.grouped returns them. Memory holds a few of each correlation ID of a group.
 */
export class NumberJoin {
  readonly #options: JoinOptions;
  #group = -1;
  readonly #keys = new Map<string, Known>();

  constructor(options: JoinOptions) {
    this.#options = options;
  }

  take(found: FoundNumbers & { readonly group: number }): void {
    if (found.group !== this.#group) this.#keys.clear();
    this.#group = found.group;
    const name = `${found.sequence} ${found.requestId.toString('latin1')}`;
    const known = this.#keys.get(name) ?? { hasRecord: false, voids: [] };
    this.#keys.set(name, known);
    if (found.source === 'ledger') this.#decided(known, found);
    else if (!this.#mayPrecede(known, found)) this.#replied(known, found);
  }

  /** Whether the decision of a reply may lie before what was read of the ledger. That of one that was sent again may be of any time. */
  #mayPrecede({ decision }: Known, { timeMs, kind }: FoundNumbers): boolean {
    const { ledgerReachesMs } = this.#options;
    const isOfAnyTime = kind === 'again' && decision === undefined && ledgerReachesMs > Number.NEGATIVE_INFINITY;
    return isOfAnyTime || timeMs < ledgerReachesMs;
  }

  #decided(known: Known, found: FoundNumbers): void {
    const { decision } = known;
    if (found.kind === 'void') {
      if (known.voids.length < MAX_VOIDS) known.voids.push(found);
      return;
    }
    const isOther = decision !== undefined && !isSame(decision, found);
    if (isOther && isLate(found, decision)) return;
    const isRecord = found.kind === 'decided';
    const isAgain = known.hasRecord && isRecord;
    if (decision !== undefined && (isAgain || (isOther && decision.kind !== 'doubtful'))) {
      const message = 'one correlation ID has two records of numbers that count';
      this.#options.find({ code: 'SPLIT', message, locations: [decision, found] });
    } else if (decision !== undefined && !isOther) this.#sameFormat(decision, found);
    if (isRecord || decision === undefined) known.decision = found;
    known.hasRecord ||= isRecord;
  }

  /** An older reply may have numbers of an earlier decision that the ledger no longer has. */
  #replied(known: Known, reply: FoundNumbers): void {
    const right = known.decision ?? known.reply;
    const { losses } = this.#options;
    known.reply ??= reply;
    if (right !== undefined && isSame(right, reply)) this.#sameFormat(right, reply);
    else if (right?.kind !== 'doubtful' && (right !== undefined || !losses.has(reply)))
      this.#wrongReply(known, right, reply);
  }

  #wrongReply({ voids }: Known, right: FoundNumbers | undefined, reply: FoundNumbers): void {
    const { find, losses } = this.#options;
    const ofVoid = voids.find((one) => isSame(one, reply));
    // In a copied log at other offsets records are void that counted before.
    if (ofVoid !== undefined && !losses.has(reply)) {
      const message = 'a reply has the numbers of a record that does not count';
      find({ code: 'VOID', message, locations: [ofVoid, reply] });
    } else if (right === undefined) {
      find({ code: 'UNDECIDED', message: 'a reply has numbers without a decision', locations: [reply] });
    } else {
      const message = losses.has(reply)
        ? TOLD_ANEW
        : 'a reply has other numbers than were decided, or than another reply';
      find({ code: 'DIVERGENT', message, locations: [right, reply] });
    }
  }

  #sameFormat(right: FoundNumbers, other: FoundNumbers): void {
    if (right.format === other.format) return;
    const message = `numbers of the sequence ${right.sequence} are written '${right.format}' and '${other.format}'`;
    this.#options.find({ code: 'FORMAT', message, locations: [right, other] });
  }
}

/** Nobody could prevent it; whoever keeps the books has to know it all the same. */
export const TOLD_ANEW = 'a correlation ID was told numbers that the ledger has lost, and others besides';

/** Void records that are kept of one correlation ID; each take-over may leave one. */
const MAX_VOIDS = 10;

/** What is known of one correlation ID in one sequence. */
interface Known {
  decision?: FoundNumbers;
  /** The first reply. */
  reply?: FoundNumbers;
  /** The ledger has the record itself, not only a renewal. */
  hasRecord: boolean;
  readonly voids: FoundNumbers[];
}

/** A renewal that arrived late: its writer had not read the decision. What it renewed was deleted, and the correlation ID used again. */
function isLate({ kind, end }: FoundNumbers, decision: FoundNumbers): boolean {
  return kind !== 'decided' && end <= decision.offset;
}

function isSame(one: NumberRun, other: NumberRun): boolean {
  return one.first === other.first && one.count === other.count && one.step === other.step;
}
