import type { Timer } from '../../../src/async/runtime.ts';
import type { KafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type { ApiName, RequestOf, ResponseOf } from '../../../src/kafka/wire/port.ts';
import type { HandlerOf, Handlers } from './calls.ts';
import type { Clockwork } from './clockwork.ts';
import type { Cluster } from './cluster.ts';
import { FetchSessions } from './fetch-sessions.ts';
import type { Reply } from './group-member.ts';
import { groupHandlers } from './serve-groups.ts';
import { recordHandlers } from './serve-records.ts';
import { topicHandlers } from './serve-topics.ts';
import type { View } from './view.ts';

/**
 * One broker. It acts on its own view of the cluster, which is updated with a delay. Frozen, it accepts connections and
 * messages and does nothing until it resumes; down, it refuses connections and has lost everything in flight.
 */
export class Broker {
  readonly node: number;
  readonly cluster: Cluster;
  /** Its clock may be wrong by `clockErrorMs`; timers that expire while it does not run fire when it does. */
  readonly clock: Clockwork;
  clockErrorMs = 0;
  view: View;
  #state: 'up' | 'frozen' | 'down' = 'up';
  #inbox: Array<() => void> = [];
  #life = 0;
  readonly #handlers: Handlers;
  readonly #viewers = new Set<() => void>();
  /** Called when the broker goes down, to end connections. */
  readonly connections = new Set<() => void>();
  readonly fetchSessions: FetchSessions;

  constructor(node: number, cluster: Cluster, view: View) {
    this.node = node;
    this.cluster = cluster;
    this.view = view;
    const { clock } = cluster;
    this.clock = {
      monotonicMs: () => clock.monotonicMs(),
      wallMs: () => Math.floor(clock.wallMs() + this.clockErrorMs),
      random: () => clock.random(),
      schedule: (delayMs, run) => this.#schedule(delayMs, run),
    };
    this.fetchSessions = new FetchSessions(
      () => cluster.nextSessionId(),
      () => cluster.fetchSessions,
    );
    this.#handlers = { ...topicHandlers(this), ...recordHandlers(this), ...groupHandlers(this) };
  }

  get state(): 'up' | 'frozen' | 'down' {
    return this.#state;
  }

  /** Runs something on this broker: now, when it resumes, or never. */
  deliver(run: () => void): void {
    if (this.#state === 'up') run();
    else if (this.#state === 'frozen') this.#inbox.push(run);
  }

  serve<A extends ApiName>(call: A, request: RequestOf<A>, reply: Reply<ResponseOf<A>>, client: string): void {
    const errorCode = this.cluster.refuses(call, this.node);
    if (errorCode !== undefined) reply.refuse(errorCode);
    else (this.#handlers[call] as HandlerOf<A>)(request, reply, client);
  }

  /** Updates its view of the cluster; an older view changes nothing. */
  learn(view: View): void {
    if (view.version < this.view.version) return;
    this.view = view;
    for (const look of [...this.#viewers]) look();
  }

  /** Calls back when this broker's view of the cluster changes, until the returned function is called. */
  watchView(look: () => void): () => void {
    this.#viewers.add(look);
    return () => this.#viewers.delete(look);
  }

  freeze(): void {
    if (this.#state === 'up') this.#state = 'frozen';
  }

  /** Resumes with what arrived meanwhile, in order. */
  thaw(): void {
    if (this.#state !== 'frozen') return;
    this.#state = 'up';
    for (const run of this.#inbox.splice(0)) this.deliver(run);
  }

  /** Crashes: connections break, and nothing in flight is ever answered. */
  stop(): void {
    this.#state = 'down';
    this.#life += 1;
    this.#inbox = [];
    this.#viewers.clear();
    this.fetchSessions.clear();
    for (const end of [...this.connections]) end();
    this.connections.clear();
  }

  start(): void {
    if (this.#state === 'down') this.#state = 'up';
  }

  #schedule(delayMs: number, run: () => void): Timer {
    const life = this.#life;
    let isDue = true;
    const timer = this.cluster.clock.schedule(delayMs, () => {
      this.deliver(() => {
        if (isDue && life === this.#life) run();
      });
    });
    return {
      cancel: () => {
        isDue = false;
        timer.cancel();
      },
    };
  }
}

/** For a promise whose result is not needed. */
export function nobody<R>(): Reply<R> {
  return { give: () => {}, refuse: (_fault: KafkaErrorCode) => {} };
}
