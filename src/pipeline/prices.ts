import type { Intake } from './intake.ts';

/**
 * What work costs, in microseconds of a worker's time, roughly. An ordinary account uses a small part of its share.
 */
export const PRICES_US = {
  /** To read, look up, decide and answer a request among others, or to refuse it. */
  request: 20,
  /** For each KiB of the record beyond the first one, which may be compressed in the topic. */
  kibibyte: 5,
  /** To append to one more reply topic, or partition that a request names, in a part. */
  append: 50,
  /** To copy a request to its home partition. */
  forward: 30,
  /** To find a decision in the ledger, which has to be read there. */
  decision: 100,
} as const;

/** The prices of a part's requests, in order. What goes to the same place as another one of the part costs less. */
export class PartPrices {
  readonly #partition: number;
  readonly #places = new Set<string>();
  #totalUs = 0;
  #last: { readonly replyTopic: string; readonly replyPartition: number | undefined } | undefined;

  constructor(partition: number) {
    this.#partition = partition;
  }

  /** The price of all that were added. */
  get totalUs(): number {
    return this.#totalUs;
  }

  /** Returns the price of one more request: known from the record alone, before anything is looked up. */
  add(intake: Intake): number {
    const us = this.#priceOf(intake);
    this.#totalUs += us;
    return us;
  }

  #priceOf(intake: Intake): number {
    const bytes = intake.record.fields?.bytes ?? 0;
    const readUs = PRICES_US.request + PRICES_US.kibibyte * Math.floor(bytes / 1_024);
    if (intake.kind === 'rejected') return readUs;
    const { request, home } = intake;
    if (home !== this.#partition) return readUs + PRICES_US.forward;
    return readUs + (this.#isOneMore(request) ? PRICES_US.append : 0);
  }

  /** Whether no request before goes to this place; the first one of a part does not count. */
  #isOneMore({ replyTopic, replyPartition }: { replyTopic: string; replyPartition?: number | undefined }): boolean {
    const last = this.#last;
    if (last?.replyTopic === replyTopic && last.replyPartition === replyPartition) return false;
    this.#last = { replyTopic, replyPartition };
    const before = this.#places.size;
    this.#places.add(`${replyTopic} ${replyPartition}`);
    return before > 0 && this.#places.size > before;
  }
}
