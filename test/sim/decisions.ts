import type { IdBatch } from '../../src/codec/id-batch.ts';
import type { Entry, History, Letter, ReplyRecord, RequestLoss, RequestPlace, SentRequest } from './history.ts';

export const nameOf = ({ partition, correlationId }: Pick<Entry, 'partition' | 'correlationId'>) =>
  `${partition}/${correlationId}`;

/**
 * The deciding entries of each correlation ID in its partition. The first decides. A later one can decide only after
 * retention deleted the first: then a new request under the old correlation ID counts as new. Its writer must have read
 * past the offset of the first.
 */
export function decidersOf({
  entries,
  trims,
}: Pick<History, 'entries' | 'trims'>): ReadonlyMap<string, readonly Entry[]> {
  const deciders = new Map<string, Entry[]>();
  const gone = ({ partition, offset, order }: Entry, later: Entry): boolean =>
    later.end > offset &&
    trims.some((at) => at.partition === partition && at.low > offset && order < at.order && at.order < later.order);
  for (const entry of entries) {
    const known = deciders.get(nameOf(entry)) ?? [];
    if (known.every((earlier) => gone(earlier, entry))) known.push(entry);
    deciders.set(nameOf(entry), known);
  }
  return deciders;
}

/** Whether the ledger had lost acknowledged entries of a partition by then, so that its decisions are not known. */
export function hadLost({ losses }: History, partition: number, order = Number.POSITIVE_INFINITY): boolean {
  return losses.some((loss) => loss.partition === partition && loss.order < order);
}

export const placeName = ({ partition, offset, life = 0 }: RequestPlace) =>
  `${partition}/${offset}${life === 0 ? '' : ` after loss ${life}`}`;

export const requestsByPlace = ({ requests }: Pick<History, 'requests'>) =>
  new Map(requests.map((request) => [placeName(request), request]));

/**
 * The records that a reply may answer: the one that it is taken for, and the other copies of a forwarded request that
 * were there, since a reply does not show which of them was read.
 */
export function answeredBy({ requests }: Pick<History, 'requests'>) {
  const copyName = ({ partition, tag }: SentRequest) => `${partition}: ${tag}`;
  const alike = Map.groupBy(requests, copyName);
  return ({ landed }: Pick<ReplyRecord, 'landed'>, request: SentRequest): readonly SentRequest[] => {
    const copies = alike.get(copyName(request)) ?? [];
    return [request, ...copies.filter(({ order }) => order < landed)];
  };
}

/** Finds the request that an entry was written for: the last one at its offset, with its correlation ID, before it. */
export function requestsOfEntries({ requests }: Pick<History, 'requests'>): (entry: Entry) => SentRequest | undefined {
  const nameOfPlace = (partition: number, offset: number, correlationId: string) =>
    `${partition}/${offset} ${correlationId}`;
  const known = new Map<string, SentRequest[]>();
  for (const request of requests) {
    const name = nameOfPlace(request.partition, request.offset, request.correlationId);
    known.set(name, [...(known.get(name) ?? []), request]);
  }
  return ({ partition, requestOffset, correlationId, order }) =>
    known.get(nameOfPlace(partition, requestOffset, correlationId))?.findLast((request) => request.order < order);
}

/** Whether the request partition had lost the record by then. */
export function isLost(
  { requestLosses }: Pick<History, 'requestLosses'>,
  { partition, offset, order }: SentRequest,
  by = Number.POSITIVE_INFINITY,
): boolean {
  return requestLosses.some(
    (loss) => loss.partition === partition && loss.from <= offset && order < loss.order && loss.order < by,
  );
}

/** The loss of its partition's tail that made room for the record; undefined if there was none. */
export function lossBefore(
  { requestLosses }: Pick<History, 'requestLosses'>,
  { partition, life = 0 }: RequestPlace,
): RequestLoss | undefined {
  return requestLosses.filter((loss) => loss.partition === partition)[life - 1];
}

/**
 * Whether a record may have been passed over: its offset was used before, and no worker has noticed, since the log was
 * as long again before the next fetch.
 */
export function mayBePassedOver(history: Pick<History, 'requestLosses'>, place: RequestPlace): boolean {
  const loss = lossBefore(history, place);
  return loss !== undefined && loss.seen === undefined && place.offset < loss.end;
}

export function sameRanges(a: IdBatch, b: IdBatch): boolean {
  return a.ranges.length === b.ranges.length && a.ranges.every(({ first }, i) => first === b.ranges[i]?.first);
}

/**
 * Whether a decision for a request's correlation ID may have been in the part that the ledger had lost by then. If the
 * ID was first sent after the loss, it was not.
 */
export function mayBeLost(history: History, { partition, correlationId }: SentRequest, order: number): boolean {
  const { losses, firstSent } = history;
  const last = losses.findLast((loss) => loss.partition === partition && loss.order < order);
  return last !== undefined && (firstSent.get(correlationId) ?? 0) < last.order;
}

type Content = Pick<SentRequest, 'correlationId' | 'triedAs' | 'sequence' | 'count' | 'replyTopic' | 'expiresAtMs'>;
type Sending = Pick<ReplyRecord, 'sent' | 'landed'>;

/**
 * Answers by the content of their requests: of equal requests that are read together only one gets an answer. A refusal
 * answers only those that expire at the same time as well. The partition does not matter: a request that was forwarded
 * is in two, and its answer does not say which one was read.
 */
export class EqualRequests {
  readonly #answers = new Map<string, Sending[]>();

  replied(to: Content, { reply, ...sending }: Sending & Pick<ReplyRecord, 'reply'>): void {
    this.#add('error' in reply ? refusalName(to) : batchName(to), sending);
  }

  dropped(request: Content, { code, ...sending }: Sending & Pick<Letter, 'code'>): void {
    this.#add(code === 'REPLY_UNDELIVERABLE' ? batchName(request) : refusalName(request), sending);
  }

  /** Whether the answer to an equal request was sent after this one could be read, and landed by `until`. */
  answers(request: Content & Pick<SentRequest, 'order'>, until = Number.POSITIVE_INFINITY): boolean {
    const answers = [batchName(request), refusalName(request)].flatMap((name) => this.#answers.get(name) ?? []);
    return answers.some(({ sent, landed }) => sent > request.order && landed <= until);
  }

  #add(name: string, { sent, landed }: Sending): void {
    this.#answers.set(name, [...(this.#answers.get(name) ?? []), { sent, landed }]);
  }
}

function batchName({ correlationId, triedAs, sequence, count, replyTopic }: Content): string {
  return [count, replyTopic, triedAs, correlationId, ...(sequence === undefined ? [] : [sequence])].join(' ');
}

function refusalName(content: Content): string {
  return `${batchName(content)} until ${content.expiresAtMs}`;
}
