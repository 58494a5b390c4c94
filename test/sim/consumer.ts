import { describeError, IdallocError } from '../../src/errors.ts';
import type { BatchControl } from '../../src/pipeline/batch.ts';
import type { RequestRecord } from '../../src/pipeline/ports.ts';
import type { KafkaClient } from './clients.ts';
import type { Assignment } from './group.ts';
import type { History } from './history.ts';
import type { Process } from './machine.ts';
import type { World } from './world.ts';

const HEARTBEAT_MS = 3_000;
const COMMIT_MS = 1_000;
const LOOK_MS = 250;
const GRACE_MS = 10_000;
const DRAIN_MS = 5_000;
const REST_MS = 200;
const FETCH_AT_ONCE = 5;

interface Session {
  readonly partition: number;
  current: boolean;
  next: number | undefined;
  committed: number | undefined;
  inHand: Promise<void> | undefined;
}

export interface ConsumerOptions {
  readonly world: World;
  readonly process: Process;
  readonly client: KafkaClient;
  readonly history: History;
  /** May requests be taken, as far as identity and index know? */
  readonly isOpen: () => boolean;
  readonly onJoin: (partitions: readonly number[]) => void;
  readonly handler: (partition: number, records: readonly RequestRecord[], control: BatchControl) => Promise<void>;
}

/** A worker's stay in the request group, with the rules of the real consumer over a simulated broker. */
export class Consumer {
  readonly #options: ConsumerOptions;
  readonly #leaving = new AbortController();
  readonly #ended: Promise<void>[] = [];
  #sessions: Session[] = [];
  #generation = 0;
  #joined = false;

  constructor(options: ConsumerOptions) {
    this.#options = options;
  }

  run(): void {
    this.#ended.push(this.#membership(), this.#commits());
  }

  /** Takes no more requests, waits for those in hand, commits, leaves. */
  async stop(): Promise<void> {
    const { process, client } = this.#options;
    this.#leaving.abort();
    await Promise.all(this.#ended);
    await Promise.race([Promise.all(this.#sessions.map(({ inHand }) => inHand)), process.sleep(DRAIN_MS)]);
    await this.#commit();
    this.#endSessions();
    await client.call('leave', ({ group }) => group.leave(process.name)).catch(() => undefined); // it is evicted later
  }

  get #open(): boolean {
    return !this.#leaving.signal.aborted && this.#options.isOpen();
  }

  /** Joins when there is something to serve with, stays while heartbeats are answered, leaves when closed for long. */
  async #membership(): Promise<void> {
    const { world, process, client, isOpen } = this.#options;
    const { signal } = this.#leaving;
    let openMs = 0;
    while (!signal.aborted) {
      if (isOpen()) openMs = world.nowMs;
      const stays = this.#joined && world.nowMs - openMs < GRACE_MS;
      if (stays) {
        const {
          process: { name },
        } = this.#options;
        const same = await client
          .call('heartbeat', ({ group }) => group.heartbeat(name, this.#generation))
          .catch(() => true); // no answer says nothing
        if (!same) await this.#join();
      } else if (this.#joined) {
        this.#endSessions();
        this.#joined = false;
        await client.call('leave', ({ group }) => group.leave(process.name)).catch(() => undefined); // evicted later
      } else if (isOpen()) await this.#join();
      await process.sleep(this.#joined ? world.rng.between(0.5, 1) * HEARTBEAT_MS : LOOK_MS, signal);
    }
  }

  async #join(): Promise<void> {
    const { process, client } = this.#options;
    this.#endSessions();
    const joined: Assignment | undefined = await client
      .call('join', ({ group }) => group.join(process.name))
      .catch(() => undefined); // tried again
    this.#joined = joined !== undefined;
    if (joined === undefined || this.#leaving.signal.aborted) return;
    this.#generation = joined.generation;
    for (const partition of joined.partitions) {
      const session: Session = { partition, current: true, next: undefined, committed: undefined, inHand: undefined };
      this.#sessions.push(session);
      void this.#serve(session);
    }
    this.#options.onJoin(joined.partitions);
  }

  #endSessions(): void {
    for (const session of this.#sessions) session.current = false;
    this.#sessions = [];
  }

  async #serve(session: Session): Promise<void> {
    const { process, client, handler } = this.#options;
    const { partition } = session;
    const current = (): boolean => session.current;
    const [from] = await client.fetch('committed', ({ group }) => [group.committed(partition)], current);
    while (session.current) {
      const at = session.next ?? from ?? 0;
      const records = await client.fetch(
        `requests ${partition}`,
        ({ requests }) => requests[partition]?.slice(at, at + FETCH_AT_ONCE) ?? [],
        current,
      );
      if (!session.current) return;
      if (!this.#open) {
        await process.sleep(LOOK_MS);
        continue;
      }
      const control = {
        isCurrent: () => session.current && this.#open,
        resolved: (offset: number) => {
          if (session.current) session.next = offset + 1;
        },
      };
      session.inHand = this.#guarded(handler(partition, records, control));
      await session.inHand;
      session.inHand = undefined;
    }
  }

  /** After a fault that may pass the partition rests; any other has no place here. */
  async #guarded(work: Promise<void>): Promise<void> {
    const { process, history, world } = this.#options;
    try {
      await work;
    } catch (error) {
      world.note(() => `${process.name}: ${describeError(error)}`);
      if (!(error instanceof IdallocError && error.retryable)) history.defects.push(describeError(error));
      await process.sleep(REST_MS);
    }
  }

  async #commits(): Promise<void> {
    const { process } = this.#options;
    while (!this.#leaving.signal.aborted) {
      await process.sleep(COMMIT_MS, this.#leaving.signal);
      await this.#commit();
    }
  }

  async #commit(): Promise<void> {
    const { client, process, history, world } = this.#options;
    const due = this.#sessions.filter(({ next, committed }) => next !== undefined && next !== committed);
    if (due.length === 0) return;
    const offsets = new Map(due.map(({ partition, next }) => [partition, next ?? 0]));
    const [generation, sent] = [this.#generation, world.tick()];
    const accept = ({ group }: Parameters<Parameters<KafkaClient['call']>[1]>[0]): boolean => {
      if (!group.commit(process.name, generation, offsets)) return false;
      for (const [partition, offset] of offsets) history.commits.push({ sent, partition, offset });
      return true;
    };
    const accepted = await client.call('commit', accept).catch(() => false); // the next commit repeats it
    if (!accepted) return;
    for (const session of due) session.committed = offsets.get(session.partition);
  }
}
