import type { NewRecord } from '../../src/kafka/records/record.ts';
import { unique } from '../support/unique.ts';
import type { Running } from './running.ts';
import { Requests, type Stage, type Topics, until } from './stage.ts';

const SEND_CHUNK = 2_000;
/** As long as most correlation IDs. */
const UUID_BYTES = 36;
const POLL_MS = 20;
const TIMEOUT_MS = 120_000;
/** A contender that answers fewer requests per ms, start-up not counted, is reported as stuck. */
const SLOWEST_PER_MS = 3;

/** Start-up does not count. */
export interface Rate {
  readonly requests_per_s: number;
  /** Processor time per request, in microseconds; other load on the machine changes it less than the rate. */
  readonly cpu_us: number;
  /**
   * Of it, what the thread used that runs the program; the rest is of threads that compile, collect memory, or serve
   * sockets. Left out where it is not known.
   */
  readonly main_thread_us?: number;
  /** The same of what was looked at besides. */
  readonly beside_us?: number;
}

/** What is measured and watched: a process, or several together. */
export interface Measured extends Pick<Running, 'cpuMs' | 'check'> {
  /** Processor time of another process, which is looked at besides. */
  besideMs?(): number;
  /** Processor time of the thread that runs the program; NaN if that is not known. */
  mainThreadMs?(): number;
}

/** Nothing was measured, since all replies were there at the first look after the begin of the measurement. */
export class TooFewRequests extends Error {}

/**
 * Fills the request topic with `requests` requests for `ids` IDs each; `shift`: how many partitions each is off its
 * own.
 */
export async function fill(
  stage: Stage,
  topics: Topics,
  requests: number,
  ids: number,
  { headers, shift = 0 }: { readonly headers?: Readonly<Record<string, string>>; readonly shift?: number } = {},
): Promise<void> {
  const maker = new Requests(topics, ids, headers);
  for (let at = 0; at < requests; ) {
    const byPartition = Array.from({ length: topics.partitions }, (): NewRecord[] => []);
    for (const end = Math.min(requests, at + SEND_CHUNK * topics.partitions); at < end; at += 1) {
      const { record, partition } = maker.make(unique().padStart(UUID_BYTES, '0'));
      byPartition[(partition + shift) % topics.partitions]?.push(record);
    }
    const parts = [...byPartition.entries()].filter(([, records]) => records.length > 0);
    await Promise.all(parts.map(([partition, records]) => stage.append(topics.requests, partition, records)));
  }
}

/** By then one contender has started, and is at its speed. */
const FIRST_TENTH = 0.1;

/**
 * The rate at which a contender that has just started serves a full topic, to the last reply; `before`: replies written
 * by earlier runs; `fromShare`: the share of the replies from which on it is measured.
 *
 * @throws TooFewRequests if the contender was faster than the looks at it.
 */
export async function rateOf(
  stage: Stage,
  topics: Topics,
  running: Measured,
  requests: number,
  before = 0,
  fromShare = FIRST_TENTH,
): Promise<Rate> {
  const look = (seen: number) => ({
    seen,
    atMs: performance.now(),
    cpuMs: running.cpuMs(),
    besideMs: running.besideMs?.() ?? Number.NaN,
    mainThreadMs: running.mainThreadMs?.() ?? Number.NaN,
  });
  let from: ReturnType<typeof look> | undefined;
  let rate: Rate | undefined;
  await until(running, TIMEOUT_MS + requests / SLOWEST_PER_MS, POLL_MS, async () => {
    const seen = (await stage.replied(topics)) - before;
    if (from === undefined) {
      if (seen >= requests * fromShare) from = look(seen);
      return seen >= requests;
    }
    if (seen < requests) return false;
    const [begin, now] = [from, look(seen)];
    const served = now.seen - begin.seen;
    const mainThreadMs = now.mainThreadMs - begin.mainThreadMs;
    const usEach = (tookMs: number) => Number(((1_000 * tookMs) / served).toFixed(1));
    rate = {
      requests_per_s: Math.round((1_000 * served) / (now.atMs - begin.atMs)),
      cpu_us: usEach(now.cpuMs - begin.cpuMs),
      ...(Number.isNaN(mainThreadMs) ? {} : { main_thread_us: usEach(mainThreadMs) }),
      ...(running.besideMs === undefined ? {} : { beside_us: usEach(now.besideMs - begin.besideMs) }),
    };
    return true;
  });
  if (rate === undefined)
    throw new TooFewRequests('all replies were there before anything could be measured: more requests are needed');
  return rate;
}
