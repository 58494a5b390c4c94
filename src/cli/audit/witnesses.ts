import type { TopicRecord } from '../../adapters/kafka/topics/spans.ts';
import type { IdBatch } from '../../codec/id-batch.ts';
import { readWitness, readWitnessKey } from '../../codec/witness.ts';
import type { LayoutReference } from '../../core/find-layout.ts';
import { decompose, type Layout, toTicks } from '../../core/layout.ts';
import { wallMs } from '../../core/units.ts';
import type { Finding } from './check.ts';
import type { IdRun } from './store.ts';

/** Who allocated a batch, as its evidence says: the holder of a worker ID, under the fence of its term. */
export type TermName = Pick<IdBatch, 'datacenterId' | 'workerId' | 'fence'>;

interface Term extends TermName {
  readonly layout: Layout;
}

/** The highest ceiling that was witnessed, in ticks of its layout. */
interface Witnessed {
  readonly ticks: number;
  /** Undefined if an earlier release wrote it. */
  readonly layout?: LayoutReference | undefined;
}

/**
 * The ceilings that the witness topic shows. A term witnesses each reservation before it uses it, and compaction keeps the last record
 * of each name. So a term whose records are all there has no ID at its highest ceiling or above.
 *
 * A successor removes the records of earlier terms. Ceilings only rise, so what is left of the worker ID bounds those terms, too,
 * though not as closely. Memory holds one ceiling for each term that the topic shows.
 */
export class WitnessedCeilings {
  readonly #terms = new Map<string, Witnessed>();
  readonly #workers = new Map<string, Witnessed>();
  /** Terms of which a record was removed. */
  readonly #removed = new Set<string>();
  readonly #rebuiltMs = new Map<string, number>();

  /** Takes the records of the witness topic, in log order. Workers refuse to start on an unreadable one, so it is left out here. */
  take({ key, value, headers, timestampMs }: TopicRecord): void {
    const name = key?.toString('latin1') ?? '';
    const term = readWitnessKey(name);
    if (term === undefined) {
      if (value !== null && /^[0-9]+$/.test(name)) this.#rebuiltMs.set(name, timestampMs);
      return;
    }
    if (value === null) {
      this.#removed.add(termText(term));
      return;
    }
    const witness = readWitness(name, value.toString('latin1'), headers);
    if (witness === undefined) return;
    raise(this.#terms, termText(term), witness);
    raise(this.#workers, workerText(term), witness);
  }

  /** All IDs of a term are below this tick; undefined if the topic no longer shows any ceiling of its worker ID in this layout. */
  ceilingOf(term: TermName, layout: LayoutReference): number | undefined {
    const name = termText(term);
    const own = this.#removed.has(name) ? undefined : this.#terms.get(name);
    const witnessed = own ?? this.#workers.get(workerText(term));
    if (witnessed?.layout === undefined) return witnessed?.ticks;
    const { layoutFingerprint, epochMs } = witnessed.layout;
    return layoutFingerprint === layout.layoutFingerprint && epochMs === layout.epochMs ? witnessed.ticks : undefined;
  }

  /** When the namespace of a datacenter was last rebuilt, by the broker's clock. The new etcd may have repeated fences since. */
  rebuiltMs(datacenterId: number): number {
    return this.#rebuiltMs.get(String(datacenterId)) ?? Number.NEGATIVE_INFINITY;
  }
}

function raise(ceilings: Map<string, Witnessed>, name: string, { ticks, layout }: Witnessed): void {
  if ((ceilings.get(name)?.ticks ?? -1) < ticks) ceilings.set(name, { ticks, layout });
}

function termText(term: TermName): string {
  return `${workerText(term)}/${term.fence}`;
}

function workerText({ datacenterId, workerId }: Omit<TermName, 'fence'>): string {
  return `${datacenterId}/${workerId}`;
}

/** Terms that are known by number. A forged ledger may name more; their batches are counted as not judged. */
const MAX_TERMS = 1_000_000;

/** Numbers the terms that batches name, so that each batch is stored with a small number. */
export class Terms {
  readonly #numbers = new Map<string, number>();
  readonly #terms: Term[] = [];

  /** Undefined beyond the bound. */
  numberOf({ datacenterId, workerId, fence }: TermName, layout: Layout): number | undefined {
    const name = `${termText({ datacenterId, workerId, fence })} ${layoutText(layout)}`;
    const known = this.#numbers.get(name);
    if (known !== undefined || this.#terms.length >= MAX_TERMS) return known;
    this.#numbers.set(name, this.#terms.length);
    return this.#terms.push({ datacenterId, workerId, fence, layout }) - 1;
  }

  at(number: number): Term | undefined {
    return this.#terms[number];
  }
}

function layoutText({ fingerprint, epochMs }: Layout): string {
  return `${fingerprint}/${epochMs}`;
}

export interface TermSearchOptions {
  readonly terms: Terms;
  readonly witnesses: WitnessedCeilings;
  /** Twice the largest difference between the clocks of brokers, or of a worker and a broker. */
  readonly clockMarginMs: number;
  readonly find: (finding: Finding) => void;
}

/**
 * Checks each run of IDs against the term that its batch names. Runs come ordered by their first ID. IDs of one worker ID rise with
 * its fences, since each term starts at the ceiling of the one before; and they lie below the ceiling that was witnessed.
 *
 * Only a rebuild of the namespace lets fences fall. The topic shows when the last one was; what was allocated before it is compared
 * with nothing after it. Memory holds one run of each worker ID.
 */
export class TermSearch {
  readonly #options: TermSearchOptions;
  readonly #last = new Map<string, { readonly run: IdRun; readonly term: Term }>();
  /** Runs whose terms are not known, or have no ceiling in the witness topic. */
  unwitnessed = 0;

  constructor(options: TermSearchOptions) {
    this.#options = options;
  }

  take(run: IdRun): void {
    const term = run.term === undefined ? undefined : this.#options.terms.at(run.term);
    if (term === undefined) {
      this.unwitnessed += 1;
      return;
    }
    this.#compareCeiling(run, term);
    this.#compareFence(run, term);
  }

  #compareCeiling(run: IdRun, term: Term): void {
    const { workerId, fence, layout } = term;
    const { epochMs, fingerprint: layoutFingerprint } = layout;
    const ceiling = this.#options.witnesses.ceilingOf(term, { epochMs, layoutFingerprint });
    if (ceiling === undefined) this.unwitnessed += 1;
    else if (decompose(layout, run.last).ticks >= ceiling) {
      const message = `${run.last} is not below the ceiling that worker ID ${workerId} witnessed under fence ${fence}`;
      this.#options.find({ code: 'ABOVE_CEILING', message, locations: [run] });
    }
  }

  #compareFence(run: IdRun, term: Term): void {
    const name = `${workerText(term)} ${layoutText(term.layout)}`;
    const before = this.#last.get(name);
    this.#last.set(name, { run, term });
    if (before === undefined || before.term.fence <= term.fence || this.#isRebuilt(before.run, term)) return;
    const message =
      `worker ID ${term.workerId} has ${run.first} under fence ${term.fence}, ` +
      `though the lower ID ${before.run.last} is of fence ${before.term.fence}`;
    this.#options.find({ code: 'FENCE', message, locations: [before.run, run] });
  }

  /** Whether the namespace was rebuilt after a run was allocated: no ID has a time after its allocation. */
  #isRebuilt(before: IdRun, { datacenterId, layout }: Term): boolean {
    const rebuiltMs = this.#options.witnesses.rebuiltMs(datacenterId) + this.#options.clockMarginMs;
    if (rebuiltMs === Number.NEGATIVE_INFINITY) return false;
    return decompose(layout, before.last).ticks <= toTicks(layout, wallMs(rebuiltMs));
  }
}
