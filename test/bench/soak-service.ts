import { monitorEventLoopDelay } from 'node:perf_hooks';
import { setTimeout as pause } from 'node:timers/promises';
import { decode, IdallocError, IdClient, type IdClientOptions, type RequestedBatch } from '../../src/client/index.ts';
import type { Failure, Sample } from './soak-verdict.ts';

/**
 * A service of the client soak: a process with one client. What it does is in its first argument; it reports every ID
 * that it got and every call that failed to its parent, and ends when that says so, or is gone.
 */
export interface ServicePlan {
  readonly name: string;
  readonly client: IdClientOptions;
  /** IDs that may be older are not to be handed out. */
  readonly maxAgeMs: number;
  /** next() and take(), at this rate. */
  readonly idsPerSecond?: number;
  /** takeAsync() of these counts in turn, so many callers at a time. */
  readonly takes?: { readonly counts: readonly number[]; readonly everyMs: number; readonly callers: number };
  /** request() under a correlation ID; each tenth is repeated. */
  readonly asks?: { readonly count: number; readonly everyMs: number; readonly timeoutMs: number };
  /** request() for so many IDs, with so many in progress, from 'flood' to 'calm'. */
  readonly floods?: { readonly count: number; readonly inProgress: number; readonly timeoutMs: number };
}

export type ToService = 'flood' | 'calm' | 'end';

/** What a service says at its end. */
export interface ServiceFigures {
  readonly loopDelayP99Ms: number;
  readonly loopDelayMaxMs: number;
  /** The longest time between two rounds of a loop that sleeps 50 ms. */
  readonly standstillMs: number;
  readonly oldestTakenMs: number;
  readonly calls: Readonly<Record<string, number>>;
  /** What onError had, by code. */
  readonly retried: Readonly<Record<string, number>>;
  readonly metrics: Readonly<Record<string, unknown>>;
}

export type FromService =
  | { readonly kind: 'ready' }
  /** First IDs and counts of runs, in turn. */
  | { readonly kind: 'ids'; readonly runs: BigInt64Array }
  | ({ readonly kind: 'failed'; readonly correlationId?: string } & Omit<Failure, 'service' | 'home'>)
  | ({ readonly kind: 'sample'; readonly buffered: number; readonly oldestMs: number | undefined } & Sample)
  | ({ readonly kind: 'end' } & ServiceFigures);

const TICK_MS = 50;
const SAMPLE_MS = 2_000;
/** IDs that are this much too old are a fault: the clocks of workers, and the time of a request, may show. */
const AGE_SLACK_MS = 2_000;
const REPEATED = 50;
const MOST_IN_PROGRESS = 500;

const plan = JSON.parse(process.argv[2] ?? '') as ServicePlan;
const say = (message: FromService) => void process.send?.(message);
/** Resolves when the message is written, and with it all before: what waits is lost when the process disconnects. */
const sayLast = (message: FromService) => new Promise((resolve) => process.send?.(message, resolve));
const ending = new AbortController();
const calls: Record<string, number> = {};
const retried: Record<string, number> = {};
let isFlooding = false;
let standstillMs = 0;
let oldestTakenMs = 0;

const client = await IdClient.connect({
  ...plan.client,
  hooks: {
    onError: (error) => {
      const code = error instanceof IdallocError ? error.code : error.message;
      retried[code] = (retried[code] ?? 0) + 1;
    },
  },
});

/** Reports IDs, which came from the client just now. */
function got(ids: readonly bigint[]): void {
  const runs: bigint[] = [];
  let count = 0n;
  for (const [i, id] of ids.entries()) {
    count += 1n;
    if (ids[i + 1] === id + 1n) continue;
    runs.push(id + 1n - count, count);
    count = 0n;
  }
  if (runs.length > 0) say({ kind: 'ids', runs: BigInt64Array.from(runs) });
}

function failed(call: Failure['call'], error: unknown, more: Pick<Failure, 'times' | 'count' | 'fromMs'>): void {
  const { code = 'NO_CODE', message } = error as IdallocError;
  say({ kind: 'failed', call, code, message, toMs: Date.now(), ...more });
}

function note(call: string, times: number): void {
  calls[call] = (calls[call] ?? 0) + times;
}

/** The age of the oldest of these IDs, which is a failure above the limit, unless the process stood still meanwhile. */
function checkAge(call: Failure['call'], ids: readonly bigint[], stoodMs: number): void {
  if (ids.length === 0) return;
  const ageMs = Date.now() - Math.min(...ids.map((id) => decode(id).timestampMs));
  oldestTakenMs = Math.max(oldestTakenMs, ageMs);
  if (ageMs <= plan.maxAgeMs + stoodMs + AGE_SLACK_MS) return;
  const error = {
    code: 'TOO_OLD',
    message: `an ID is ${ageMs} ms old, the process stood still for ${Math.round(stoodMs)} ms`,
  };
  failed(call, error, { times: 1, count: ids.length, fromMs: Date.now() });
}

async function nextAndTake(idsPerSecond: number): Promise<void> {
  let due = 0;
  let lastMs = performance.now();
  for (let round = 0; !ending.signal.aborted; round += 1) {
    await pause(TICK_MS);
    const passedMs = performance.now() - lastMs;
    lastMs += passedMs;
    standstillMs = Math.max(standstillMs, passedMs);
    // After a standstill it goes on at its rate, rather than take all at once that was due meanwhile.
    due = Math.min(due + (idsPerSecond * passedMs) / 1_000, Math.max(1, idsPerSecond));
    const count = Math.floor(due);
    due -= count;
    if (count === 0) continue;
    const fromMs = Date.now();
    const ids: bigint[] = [];
    if (round % 4 === 3) {
      note('take', 1);
      try {
        ids.push(...client.take(count));
      } catch (error) {
        failed('take', error, { times: 1, count, fromMs });
      }
      checkAge('take', ids, passedMs);
    } else {
      note('next', count);
      const errors: unknown[] = [];
      for (let i = 0; i < count; i += 1) {
        try {
          ids.push(client.next());
        } catch (error) {
          errors.push(error);
        }
      }
      if (errors.length > 0) failed('next', errors[0], { times: errors.length, count: 1, fromMs });
      checkAge('next', ids, passedMs);
    }
    got(ids);
  }
}

async function wait({ counts, everyMs }: NonNullable<ServicePlan['takes']>, caller: number): Promise<void> {
  for (let nth = caller; !ending.signal.aborted; nth += 1) {
    await pause(everyMs);
    const count = counts[nth % counts.length] ?? 1;
    const fromMs = Date.now();
    note('takeAsync', 1);
    try {
      got(await client.takeAsync(count));
    } catch (error) {
      failed('takeAsync', error, { times: 1, count, fromMs });
    }
  }
}

function reportBatch({ batch }: RequestedBatch): void {
  if (batch.step !== 1n) throw new Error(`a batch has the step ${batch.step}, and the soak expects 1`);
  say({ kind: 'ids', runs: BigInt64Array.from(batch.ranges.flatMap(({ first, count }) => [first, BigInt(count)])) });
}

const textOf = ({ batch }: RequestedBatch): string =>
  batch.ranges.map(({ first, count }) => `${first}+${count}`).join(' ');

async function ask({ count, everyMs, timeoutMs }: NonNullable<ServicePlan['asks']>): Promise<void> {
  const answered: RequestedBatch[] = [];
  const inProgress = new Set<Promise<void>>();
  const one = async (correlationId: string, before: RequestedBatch | undefined) => {
    const fromMs = Date.now();
    note('request', 1);
    try {
      const batch = await client.request({ count, correlationId, timeoutMs });
      if (before === undefined) {
        reportBatch(batch);
        answered.push(batch);
        if (answered.length > REPEATED) answered.shift();
      } else if (textOf(batch) !== textOf(before)) {
        throw Object.assign(new Error(`${textOf(before)} at first, then ${textOf(batch)}`), { code: 'OTHER_BATCH' });
      }
    } catch (error) {
      const { code = 'NO_CODE', message } = error as IdallocError;
      say({ kind: 'failed', call: 'request', code, message, times: 1, count, correlationId, fromMs, toMs: Date.now() });
    }
  };
  for (let nth = 0; !ending.signal.aborted; nth += 1) {
    await pause(everyMs);
    if (inProgress.size >= MOST_IN_PROGRESS) continue;
    const before = nth % 10 === 9 ? answered[nth % answered.length] : undefined;
    const call = one(before === undefined ? `${plan.name}-${nth}` : String(before.correlationId), before);
    inProgress.add(call);
    void call.finally(() => inProgress.delete(call));
  }
  await Promise.all(inProgress);
}

async function flood({ count, inProgress, timeoutMs }: NonNullable<ServicePlan['floods']>): Promise<void> {
  const one = async () => {
    while (!ending.signal.aborted) {
      if (!isFlooding) {
        await pause(TICK_MS);
        continue;
      }
      const fromMs = Date.now();
      note('flood', 1);
      try {
        reportBatch(await client.request({ count, timeoutMs, signal: ending.signal }));
      } catch (error) {
        if (!ending.signal.aborted) failed('flood', error, { times: 1, count, fromMs });
      }
    }
  };
  await Promise.all(Array.from({ length: inProgress }, one));
}

async function sample(): Promise<void> {
  const { gc } = globalThis as { readonly gc?: () => void };
  if (gc === undefined) throw new Error('run the service with --expose-gc');
  while (!ending.signal.aborted) {
    await pause(SAMPLE_MS, undefined, { signal: ending.signal }).catch(() => undefined);
    gc();
    const { heapUsed, rss } = process.memoryUsage();
    const { buffered, oldestMs } = client.metrics() as { readonly buffered: number; readonly oldestMs?: number };
    say({ kind: 'sample', atMs: Date.now(), heapBytes: heapUsed, rssBytes: rss, buffered, oldestMs });
  }
}

process.on('message', (message: ToService) => {
  if (message === 'end') ending.abort();
  else isFlooding = message === 'flood';
});
// Without a parent nobody would end it.
const leave = () => process.exit();
process.once('disconnect', leave);

const delays = monitorEventLoopDelay({ resolution: 10 });
if (plan.idsPerSecond !== undefined) await client.ready();
say({ kind: 'ready' });
delays.enable();
const { idsPerSecond, takes, asks, floods } = plan;
await Promise.all([
  sample(),
  ...(idsPerSecond === undefined ? [] : [nextAndTake(idsPerSecond)]),
  ...(takes === undefined ? [] : Array.from({ length: takes.callers }, (_, caller) => wait(takes, caller))),
  ...(asks === undefined ? [] : [ask(asks)]),
  ...(floods === undefined ? [] : [flood(floods)]),
]);
delays.disable();
const metrics = { ...client.metrics() };
await client.close();
await sayLast({
  kind: 'end',
  loopDelayP99Ms: delays.percentile(99) / 1e6,
  loopDelayMaxMs: delays.max / 1e6,
  standstillMs,
  oldestTakenMs,
  calls,
  retried,
  metrics,
});
// A client that leaves something open keeps the process alive, which its parent notices.
process.off('disconnect', leave);
process.disconnect();
