import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { partitionFor } from '../../src/kafka/records/record.ts';
import type { Followed } from '../support/followed.ts';
import { idFor } from '../support/home.ts';
import type { IdRuns } from '../support/id-runs.ts';
import type { Realm } from '../support/realm.ts';
import { Watchers } from '../support/watchers.ts';
import type { FromService, ServiceFigures, ServicePlan, ToService } from './soak-service.ts';
import { allDark, type Darkness, darkSpans, type Failure, type Probe, type Sample, type Span } from './soak-verdict.ts';

const SERVICE = fileURLToPath(new URL('./soak-service.ts', import.meta.url));
const PROBE_EVERY_MS = 500;
/** While the broker is away, no more sends than this wait for it. */
const SENDS_AT_ONCE = 20;
/** A service waits at its end for the calls that it has begun, which have time limits, and closes its client. */
const END_TIMEOUT_MS = 150_000;

/** The process of a service, and what it has reported. */
export class Service {
  readonly plan: ServicePlan;
  readonly failures: Failure[] = [];
  readonly samples: (Sample & { readonly buffered: number; readonly oldestMs: number | undefined })[] = [];
  figures: ServiceFigures | undefined;
  taken = 0;
  readonly #child: ChildProcess;
  readonly #watchers = new Watchers();
  readonly #runs: IdRuns;
  readonly #partitions: number;
  #isReady = false;
  #ended: string | undefined;

  constructor(plan: ServicePlan, runs: IdRuns, partitions: number) {
    this.plan = plan;
    this.#runs = runs;
    this.#partitions = partitions;
    const execArgv = ['--expose-gc', '--disable-warning=TimeoutNegativeWarning'];
    this.#child = fork(SERVICE, [JSON.stringify(plan)], { execArgv, serialization: 'advanced' });
    this.#child.on('message', (message: FromService) => this.#take(message));
    // Not 'exit', which may come before the last messages do.
    this.#child.once('close', (code, signal) => {
      this.#ended = String(code ?? signal);
      this.#watchers.changed();
    });
  }

  async ready(): Promise<void> {
    await this.until('its client to be ready', () => this.#isReady);
  }

  /** Resolves when the condition holds, which is checked at each report; rejects when the process has ended. */
  async until(what: string, holds: () => boolean): Promise<void> {
    const look = () => {
      if (holds()) return true;
      if (this.#ended === undefined) return undefined;
      throw new Error(`service ${this.plan.name} ended with ${this.#ended} before ${what}`);
    };
    await this.#watchers.wait({ what: () => `${what}, of service ${this.plan.name}`, look });
  }

  tell(message: ToService): void {
    if (this.#child.connected) this.#child.send(message);
  }

  kill(signal: NodeJS.Signals): void {
    this.#child.kill(signal);
  }

  /** Ends it; returns what was wrong with its end, if anything was. */
  async end(): Promise<string | undefined> {
    this.tell('end');
    const over = this.#ended === undefined ? once(this.#child, 'close') : Promise.resolve();
    const late = new AbortController();
    const isLate = pause(END_TIMEOUT_MS, true, { signal: late.signal }).catch(() => false);
    if ((await Promise.race([over, isLate])) === true) {
      this.kill('SIGKILL');
      await over;
      return `the process did not exit within ${END_TIMEOUT_MS} ms${this.figures === undefined ? '' : ' after its client was closed'}`;
    }
    late.abort();
    return this.#ended === '0' && this.figures !== undefined ? undefined : `the process ended with ${this.#ended}`;
  }

  #take(message: FromService): void {
    const { kind } = message;
    if (kind === 'ready') this.#isReady = true;
    else if (kind === 'sample') this.samples.push(message);
    else if (kind === 'end') this.figures = message;
    else if (kind === 'ids') {
      for (let i = 0; i < message.runs.length; i += 2) {
        const count = Number(message.runs[i + 1]);
        this.taken += count;
        this.#runs.add(message.runs[i] as bigint, count, this.plan.name);
      }
    } else {
      const { correlationId, ...failure } = message;
      const home = correlationId && partitionFor(Buffer.from(correlationId), this.#partitions, () => 0);
      this.failures.push({ ...failure, service: this.plan.name, ...(typeof home === 'number' && { home }) });
    }
    this.#watchers.changed();
  }
}

/**
 * Sends a small request to each partition twice a second, by another client than the one under test, and follows the
 * replies.
 */
export class Probes {
  readonly #realm: Realm;
  readonly #replies: Followed;
  readonly #sent: { sentMs: number; id: string }[][];
  /** When the first reply to each arrived, of so many records that were seen. */
  readonly #answers = new Map<string, number>();
  #looked = 0;
  readonly #end = new AbortController();
  readonly #ended: Promise<void>;

  constructor(realm: Realm, replies: Followed, partitions: number) {
    this.#realm = realm;
    this.#replies = replies;
    this.#sent = Array.from({ length: partitions }, () => []);
    this.#ended = this.#run();
  }

  /**
   * Resolves when each partition has answered a probe that was sent after this call; returns the partitions that don't
   * in time.
   */
  async answered(withinMs: number): Promise<readonly number[]> {
    const fromMs = Date.now();
    const answered = () =>
      this.#byPartition().map((of) => of.some((one) => one.sentMs >= fromMs && one.answeredMs !== undefined));
    await this.#replies
      .until('each partition to answer', () => answered().every(Boolean), withinMs)
      .catch(() => undefined);
    return [...answered().entries()].flatMap(([partition, is]) => (is ? [] : [partition]));
  }

  darkness(floods: readonly Span[]): Darkness {
    const untilMs = Date.now();
    const partitions = this.#byPartition().map((probes) => darkSpans(probes, untilMs));
    return { partitions, all: allDark(partitions), floods };
  }

  async stop(): Promise<void> {
    this.#end.abort();
    await this.#ended;
  }

  #byPartition(): readonly (readonly Probe[])[] {
    const originMs = Date.now() - performance.now();
    const { seen } = this.#replies;
    for (; this.#looked < seen.length; this.#looked += 1) {
      const one = seen[this.#looked];
      const id = String(one?.message.key);
      if (one !== undefined && !this.#answers.has(id)) this.#answers.set(id, originMs + one.atMs);
    }
    return this.#sent.map((probes) => probes.map(({ sentMs, id }) => ({ sentMs, answeredMs: this.#answers.get(id) })));
  }

  async #run(): Promise<void> {
    let sends = 0;
    for (let nth = 0; !this.#end.signal.aborted; nth += 1) {
      const sentMs = Date.now();
      const requests = this.#sent.map((probes, partition) => {
        const id = idFor(`probe-${nth}`, partition, this.#sent.length);
        probes.push({ sentMs, id });
        return { correlationId: id, count: 1 };
      });
      // A probe that is not sent counts as one without a reply.
      if (sends < SENDS_AT_ONCE) {
        sends += 1;
        const send = this.#realm.send(requests).catch(() => undefined);
        void send.then(() => {
          sends -= 1;
        });
      }
      await pause(PROBE_EVERY_MS, undefined, { signal: this.#end.signal }).catch(() => undefined);
    }
  }
}
