import { at } from './search.ts';

/** The state of the model, and its encoding as a string, by which states are compared. */

/** The key of a marker, which is not a correlation ID. */
export const MARKER = -1;
export const NONE = -1;
/** A time or offset that nothing in the log shows. */
export const UNKNOWN = -2;
/** The T of a record that says a time from its own future: later than all times. */
export const AGELESS = 40;
/** A `since` before the beginning: everything is known. */
export const FOR_EVER = -9;

/**
 * A record of a request partition; its offset is its position. Records are never deleted: one that is not read again
 * counts as gone.
 */
export interface Request {
  readonly id: number;
  /** Append time of the request's first record, as far as this record shows. */
  readonly time: number;
  readonly hasOrigin: boolean;
}

/** An entry as its writer sends it. */
export interface Draft {
  readonly key: number;
  /** The end of the writer's index at look-up. */
  readonly end: number;
  /** The highest request offset in it. */
  readonly through: number;
  readonly requestOffset: number;
  /** When its writer sent it, by its own clock; 0 where that does not matter. */
  readonly sentAt: number;
}

export interface Entry extends Draft {
  readonly appendedAt: number;
}

/** A ledger partition. Trimmed entries stay here, for the indexes that know them. */
export interface Log {
  readonly low: number;
  readonly entries: readonly Entry[];
}

/** A worker's knowledge of a ledger partition: the entries from `origin` to `end`. */
export interface Index {
  readonly origin: number;
  readonly end: number;
  readonly since: number;
  readonly horizon: number;
  readonly through: number;
  /** Whether no entry since the restore has shown its time. */
  readonly isUndated: boolean;
  /** Whether it began with a restore from a log without its head, where that matters. */
  readonly isRestored: boolean;
}

export interface Worker {
  readonly indexes: readonly Index[];
  /** For each partition, the append in flight. */
  readonly drafts: readonly (Draft | undefined)[];
}

export interface Stray {
  readonly partition: number;
  readonly draft: Draft;
}

export interface State {
  readonly now: number;
  /** Whether a broker's clock was far off already. */
  readonly wasWrong: boolean;
  /** For each correlation ID the append time of its first record. */
  readonly firsts: readonly number[];
  /** For each correlation ID `partition * 64 + offset` of the first entry of its key in any log: its batch. */
  readonly batches: readonly number[];
  readonly requests: readonly (readonly Request[])[];
  readonly logs: readonly Log[];
  readonly workers: readonly Worker[];
  readonly strays: readonly Stray[];
}

export const PARTITIONS = [0, 1];

const EMPTY: Index = {
  origin: 0,
  end: 0,
  since: FOR_EVER,
  horizon: NONE,
  through: NONE,
  isUndated: false,
  isRestored: false,
};

export function initialState(ids: number, workers: number): State {
  return {
    now: 0,
    wasWrong: false,
    firsts: Array<number>(ids).fill(NONE),
    batches: Array<number>(ids).fill(NONE),
    requests: PARTITIONS.map(() => []),
    logs: PARTITIONS.map(() => ({ low: 0, entries: [] })),
    workers: Array.from({ length: workers }, () => ({
      indexes: PARTITIONS.map(() => EMPTY),
      drafts: PARTITIONS.map(() => undefined),
    })),
    strays: [],
  };
}

/** Lifts every number of the model above zero. */
const LIFT = 16;
const BLANK: Entry = { key: MARKER, end: 0, through: NONE, requestOffset: NONE, sentAt: 0, appendedAt: 0 };

/**
 * Encodes a state. Workers have no names, and entries in no index and no log have no content, so such states are equal.
 */
export function encode(state: State): string {
  const { now, firsts, batches, requests, logs, strays, workers } = state;
  const numbers = [now, state.wasWrong ? 1 : 0];
  for (const time of firsts) numbers.push(time);
  for (const batch of batches) numbers.push(batch);
  for (const records of requests) {
    numbers.push(records.length);
    for (const { id, time, hasOrigin } of records) numbers.push(id, time, hasOrigin ? 1 : 0);
  }
  for (let partition = 0; partition < logs.length; partition++) {
    const { low, entries } = at(logs, partition);
    let reach = low;
    for (const { indexes } of workers) reach = Math.min(reach, at(indexes, partition).origin);
    numbers.push(low, entries.length);
    for (let offset = 0; offset < entries.length; offset++) {
      const entry = offset < reach ? BLANK : at(entries, offset);
      pushDraft(numbers, entry);
      numbers.push(entry.appendedAt);
    }
  }
  numbers.push(strays.length);
  for (const { partition, draft } of strays) {
    numbers.push(partition);
    pushDraft(numbers, draft);
  }
  if (workers.length > 1) {
    const texts = workers.map((worker) => {
      const own: number[] = [];
      pushWorker(own, worker);
      return toText(own);
    });
    return toText(numbers) + texts.sort().join('');
  }
  for (const worker of workers) pushWorker(numbers, worker);
  return toText(numbers);
}

function pushWorker(numbers: number[], { indexes, drafts }: Worker): void {
  for (const { origin, end, since, horizon, through, isUndated, isRestored } of indexes) {
    numbers.push(origin, end, since, horizon, through, isUndated ? 1 : 0, isRestored ? 1 : 0);
  }
  for (const draft of drafts) {
    numbers.push(draft === undefined ? 0 : 1);
    if (draft !== undefined) pushDraft(numbers, draft);
  }
}

function pushDraft(numbers: number[], { key, end, through, requestOffset, sentAt }: Draft): void {
  numbers.push(key, end, through, requestOffset, sentAt);
}

function toText(numbers: number[]): string {
  for (let i = 0; i < numbers.length; i++) numbers[i] = (numbers[i] as number) + LIFT;
  return String.fromCharCode.apply(undefined, numbers);
}

export function decode(text: string, ids: number, workers: number): State {
  let place = 0;
  const next = () => text.charCodeAt(place++) - LIFT;
  const times = <T>(count: number, read: () => T): T[] => {
    const items: T[] = [];
    for (let i = 0; i < count; i++) items.push(read());
    return items;
  };
  const request = (): Request => ({ id: next(), time: next(), hasOrigin: next() === 1 });
  const draft = (): Draft => ({ key: next(), end: next(), through: next(), requestOffset: next(), sentAt: next() });
  const entry = (): Entry => ({
    key: next(),
    end: next(),
    through: next(),
    requestOffset: next(),
    sentAt: next(),
    appendedAt: next(),
  });
  const index = (): Index => ({
    origin: next(),
    end: next(),
    since: next(),
    horizon: next(),
    through: next(),
    isUndated: next() === 1,
    isRestored: next() === 1,
  });
  const awaited = () => (next() === 1 ? draft() : undefined);
  return {
    now: next(),
    wasWrong: next() === 1,
    firsts: times(ids, next),
    batches: times(ids, next),
    requests: times(2, () => times(next(), request)),
    logs: times(2, () => ({ low: next(), entries: times(next(), entry) })),
    strays: times(next(), () => ({ partition: next(), draft: draft() })),
    workers: times(workers, () => ({ indexes: times(2, index), drafts: times(2, awaited) })),
  };
}
