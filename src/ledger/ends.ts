import { type EndHead, isSameHead } from '../codec/head-values.ts';
import { IdallocError } from '../errors.ts';
import { compareEnd, type EndChange, type EndHeads, MAX_ENDS, requestsRecreated, type StoredEnd } from './end-heads.ts';
import type { KeptEntries, LedgerIndex, LedgerLog } from './ledger-ports.ts';
import type { LedgerPartition } from './partition.ts';

/** What becomes of the heads; for logs and metrics. */
export interface EndEvents {
  /**
   * All heads that were due are raised, if any was; refused: another worker wrote some of them; failed: etcd did not
   * confirm it.
   */
  raised(outcome: 'done' | 'refused' | 'failed', error?: unknown): void;
  /** The loss of a tail was stated: the log had ended at `end`, and decided requests up to `through`. */
  lost(partition: number, loss: Loss): void;
}

export interface EndsOptions {
  readonly heads: EndHeads;
  readonly index: LedgerIndex;
  readonly log: Pick<LedgerLog, 'endOffset'>;
  readonly entries: KeptEntries;
  readonly copyOf: (partition: number) => LedgerPartition;
  readonly events: EndEvents;
}

/** What was lost of a log: it had ended at `end`, and had decisions for requests up to `through`. */
export interface Loss {
  readonly end: number;
  readonly through: number;
}

/** The result of a comparison. */
export interface ComparedEnd {
  readonly stored: StoredEnd;
  readonly copyLife: number;
  /** What the first marker must state; undefined if nothing is lost. */
  readonly loss: Loss | undefined;
  /** The highest request offset that was decided as far as the heads know; -1 for none. */
  readonly through: number;
}

/** A head that this worker has compared with its copy. */
interface KnownEnd extends StoredEnd {
  /** The life of the copy when the head was read. */
  readonly copyLife: number;
  /** The heads that were written since, without an answer. */
  readonly sent: readonly EndHead[];
}

/** Unanswered writes that are remembered. An older one that takes effect only costs another comparison. */
const MAX_SENT = 8;

/**
 * The heads of a worker's partitions: how far the log of each had gone, as etcd remembers it.
 *
 *   unknown ──compare, settle──▶ known     the log has what the head says, or its loss was stated; it is raised from
 *                                          now on
 *   known   ──copy restored, another worker's write──▶ unknown
 *   known   ──copy interrupted──▶ known     if etcd still has the same head: the copy lost nothing, or it would be
 *                                           restored
 *
 * Nothing is decided while the head is unknown. Only the owner raises it, up to what it has read back, and compares its
 * revision. So of two owners one is refused, and compares its copy again before it decides anything.
 */
export class LedgerEnds {
  readonly #options: EndsOptions;
  readonly #known = new Map<number, KnownEnd>();
  /**
   * What copies had before they were restored: maybe more than was raised, for a second. Until the log has been
   * compared with it.
   */
  readonly #kept = new Map<number, EndHead>();
  /** Partitions whose entries are at other offsets, with the head and the copy that showed it. */
  readonly #copied = new Map<
    number,
    { readonly revision: bigint; readonly copyLife: number; readonly error: IdallocError }
  >();
  readonly #restores = new Map<number, number>();
  /** In which life of the head the copy has forgotten the requests from before a wipe. */
  readonly #disowned = new Map<number, number>();
  #raising: Promise<void> | undefined;
  #isFailing = false;

  constructor(options: EndsOptions) {
    this.#options = options;
  }

  /** Why nothing can be decided in a partition until an operator has adopted its log; undefined if it can. */
  copied(partition: number): IdallocError | undefined {
    return this.#copied.get(partition)?.error;
  }

  /**
   * How often the copy of the partition was restored, or a loss was stated: after either, it may show less than before.
   */
  restores(partition: number): number {
    return this.#restores.get(partition) ?? 0;
  }

  /** The copy is about to be restored. What an owner has decided in the last second, only the copy knows. */
  restarted(partition: number): void {
    const { index, entries } = this.#options;
    const known = this.#known.get(partition);
    this.#known.delete(partition);
    this.#restored(partition);
    entries.forget(partition);
    const last = index.last(partition);
    if (known === undefined || last === undefined) return;
    const { offset, digest } = last;
    const head = { end: offset + 1, digest, through: index.through(partition), time: 0, life: known.head?.life ?? 0 };
    this.#kept.set(partition, head);
  }

  /** Whether the copy has been compared, and etcd still has the head with which it was. Rejects as etcd does. */
  async isCompared(partition: number): Promise<boolean> {
    const known = this.#known.get(partition);
    const { life: copyLife } = this.#options.copyOf(partition);
    if (known === undefined || known.copyLife === copyLife) return known !== undefined;
    const stored = await this.#read(partition);
    return this.#adopt(partition, stored, copyLife);
  }

  /**
   * Compares the copy with what etcd, and the copy before it, remember. Call in a turn of the partition, and `settle`
   * once the first marker was read back. Rejects with LEDGER_COPIED, NAMESPACE_DAMAGED, LEDGER_TRUNCATED, and as etcd
   * and the ledger do.
   */
  async compare(partition: number): Promise<ComparedEnd> {
    const { index, copyOf } = this.#options;
    const before = this.#known.get(partition);
    this.#known.delete(partition); // nothing is raised meanwhile
    await this.#raising;
    const { life: copyLife } = copyOf(partition);
    const stored = await this.#read(partition);
    if (stored.damage !== undefined) throw stored.damage;
    const copied = this.#copied.get(partition);
    if (copied?.revision === stored.revision && copied.copyLife === copyLife) throw copied.error;
    this.#copied.delete(partition);
    const { life = 0, end: storedEnd = 0 } = stored.head ?? {};
    const remembered = this.#kept.get(partition);
    const kept = remembered?.life === life ? remembered : undefined;
    const heads = [stored.head, kept].filter((head) => head !== undefined);
    const isSame = before?.revision === stored.revision && before.copyLife === copyLife;
    if (!isSame && storedEnd > (kept?.end ?? 0)) await this.#reach(partition, storedEnd);
    const lost: EndHead[] = [];
    for (const head of isSame ? [] : heads) if (await this.#isLost(partition, head, stored.revision)) lost.push(head);
    const through = Math.max(-1, ...heads.map((head) => head.through));
    const end = Math.max(...lost.map((head) => head.end));
    const loss = lost.length === 0 ? undefined : { end, through: Math.max(through, index.through(partition)) };
    return { stored, copyLife, loss, through };
  }

  /**
   * The first marker was read back, and stated the loss, if there is one. Rejects with INDEX_RESTORING if another
   * worker has written the head meanwhile, and as etcd does; then the copy must be compared again.
   */
  async settle(partition: number, { stored, copyLife, loss }: ComparedEnd): Promise<void> {
    let now = stored;
    if (loss !== undefined) {
      const head = this.#headNow(partition, (stored.head?.life ?? 0) + 1);
      if (head === undefined) throw restoring(partition, 'its copy is in doubt');
      now = (await this.#write([{ partition, revision: stored.revision, head }])).get(partition) ?? stored;
      if (now.head === undefined || !isSameHead(now.head, head))
        throw restoring(partition, 'another worker has written how far it had gone');
      this.#restored(partition);
      this.#options.events.lost(partition, loss);
    }
    if (this.#options.copyOf(partition).life !== copyLife)
      throw restoring(partition, 'its copy was in doubt meanwhile');
    this.#kept.delete(partition);
    this.#known.set(partition, { head: now.head, revision: now.revision, copyLife, sent: [] });
  }

  /**
   * Rejects with REQUESTS_RECREATED if more requests were decided, up to `known`, than the topic has. Where etcd and
   * the log agree that it never had so many, since both topics were created again and adopted, the copy alone knows
   * them, from before a wipe. Then it forgets them, and is restored: INDEX_RESTORING.
   */
  requireSameRequests(partition: number, compared: ComparedEnd, topic: { known: number; requestEnd: number }): void {
    const [{ stored, loss, through }, { known, requestEnd }] = [compared, topic];
    const { index, copyOf } = this.#options;
    // What was adopted with an empty topic is decided for its first request.
    if (known < Math.max(1, requestEnd)) return;
    const life = stored.head?.life ?? 0;
    const isAdopted = life > 0 && loss === undefined && through < requestEnd;
    if (isAdopted && this.#disowned.get(partition) !== life) {
      this.#disowned.set(partition, life);
      copyOf(partition).restore('its index knows requests of another topic');
      index.disown(partition);
      throw restoring(partition, 'its index knew requests of another topic');
    }
    throw requestsRecreated(partition, known, requestEnd);
  }

  #restored(partition: number): void {
    this.#restores.set(partition, this.restores(partition) + 1);
  }

  /** Raises the heads of these partitions to what was read back; does nothing for those that did not change. */
  async raise(partitions: readonly number[]): Promise<void> {
    if (this.#raising !== undefined) return; // etcd is slow
    this.#raising = this.#raiseAll(partitions).catch((error: unknown) => {
      if (!(error instanceof IdallocError)) throw error;
      this.#told('failed', error);
    });
    await this.#raising.finally(() => {
      this.#raising = undefined;
    });
  }

  async #raiseAll(partitions: readonly number[]): Promise<void> {
    const unsure = partitions.filter((partition) => (this.#known.get(partition)?.sent.length ?? 0) > 0);
    // The heads are read also when there are none: those of a worker reject once its brokers are those of another
    // cluster.
    for (const [partition, stored] of await this.#options.heads.read(unsure)) this.#adopt(partition, stored);
    const changes = partitions.flatMap((partition) => this.#changeOf(partition) ?? []);
    if (changes.length === 0 && this.#isFailing) this.#told('done'); // it is known by now, or others raise it
    for (let from = 0; from < changes.length; from += MAX_ENDS)
      await this.#raiseSome(changes.slice(from, from + MAX_ENDS));
  }

  #changeOf(partition: number): EndChange | undefined {
    const known = this.#known.get(partition);
    if (known === undefined || known.copyLife !== this.#options.copyOf(partition).life) return undefined;
    const head = this.#headNow(partition, known.head?.life ?? 0);
    if (head === undefined || head.end <= (known.head?.end ?? 0)) return undefined;
    return { partition, revision: known.revision, head };
  }

  async #raiseSome(changes: readonly EndChange[]): Promise<void> {
    for (const { partition, head } of changes) {
      const known = this.#known.get(partition);
      if (known !== undefined) this.#known.set(partition, { ...known, sent: [...known.sent, head].slice(-MAX_SENT) });
    }
    const stored = await this.#write(changes);
    const isOwn = [...stored].map(([partition, found]) => this.#adopt(partition, found));
    this.#told(isOwn.includes(false) ? 'refused' : 'done');
  }

  #told(...[outcome, error]: Parameters<EndEvents['raised']>): void {
    this.#isFailing = outcome === 'failed';
    this.#options.events.raised(outcome, error);
  }

  /**
   * Writes heads, and returns what is stored then. The answer to a write that was sent twice may be that of the second
   * copy, which was refused. If one is refused all are, so the others are written again in the next round.
   */
  async #write(changes: readonly EndChange[]): Promise<ReadonlyMap<number, StoredEnd>> {
    const { heads } = this.#options;
    const revision = await heads.swap(changes);
    if (revision === undefined) return await heads.read(changes.map(({ partition }) => partition));
    return new Map(changes.map(({ partition, head }) => [partition, { head, revision }]));
  }

  /**
   * Whether the stored head is the known one, or one that this worker wrote without an answer; if not, it is unknown
   * from now on.
   */
  #adopt(partition: number, { head, revision }: StoredEnd, copyLife?: number): boolean {
    const known = this.#known.get(partition);
    if (known === undefined) return false;
    const isSame = revision === known.revision;
    const isOwn = known.sent.some((sent) => head !== undefined && isSameHead(sent, head));
    if (!isSame && !isOwn) this.#known.delete(partition);
    else
      this.#known.set(partition, {
        head,
        revision,
        copyLife: copyLife ?? known.copyLife,
        sent: isSame ? known.sent : [],
      });
    return isSame || isOwn;
  }

  /**
   * Reads the log up to this end, if it is that long. A copy that was restored has shown already whether the log is as
   * long as it was before, but not how far another owner has gone since.
   */
  async #reach(partition: number, end: number): Promise<void> {
    const { index, log, copyOf } = this.#options;
    if (index.end(partition) < end) await copyOf(partition).reached(await log.endOffset(partition, end));
  }

  /** Rejects with LEDGER_COPIED. */
  async #isLost(partition: number, head: EndHead, revision: bigint): Promise<boolean> {
    const { index, entries, copyOf } = this.#options;
    const copy = copyOf(partition);
    const { life: copyLife } = copy;
    entries.forget(partition);
    const verdict = await compareEnd(head, { partition, end: index.end(partition), entries }).catch(
      (error: unknown) => {
        const isShorter = error instanceof IdallocError && error.code === 'LEDGER_TRUNCATED';
        if (isShorter) copy.invalidate(error.message);
        throw error;
      },
    );
    if (copy.refusal !== undefined) throw copy.refusal;
    if (verdict.kind !== 'copied') return verdict.kind === 'lost';
    const { shift, offset } = verdict;
    const message = `ledger partition ${partition} has the entry of offset ${offset - shift} at offset ${offset}: something copied its entries to other offsets, where numbers of sequences don't count; nothing is decided in it until you run 'idalloc namespace adopt-cluster'`;
    const error = new IdallocError('LEDGER_COPIED', message);
    this.#copied.set(partition, { revision, copyLife, error });
    throw error;
  }

  /** The head that the copy shows; undefined before an entry was read. */
  #headNow(partition: number, life: number): EndHead | undefined {
    const { index, copyOf } = this.#options;
    const last = copyOf(partition).lastRead;
    if (last === undefined) return undefined;
    const { offset, digest, appendedAtMs: time } = last;
    return { end: offset + 1, digest, through: index.through(partition), time, life };
  }

  async #read(partition: number): Promise<StoredEnd> {
    const found = (await this.#options.heads.read([partition])).get(partition);
    return found ?? { head: undefined, revision: 0n };
  }
}

function restoring(partition: number, why: string): IdallocError {
  return new IdallocError('INDEX_RESTORING', `ledger partition ${partition} is compared with etcd again: ${why}`);
}
