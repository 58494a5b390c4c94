import { decodeIdReply } from '../../src/codec/id-reply.ts';
import type { Appended, OutgoingRecord, RequestRecord } from '../../src/pipeline/ports.ts';
import { type LedgerDraft, MemoryLedger } from '../support/memory-ledger.ts';
import { MemoryWitness } from '../support/memory-witness.ts';
import { Group } from './group.ts';
import type { History } from './history.ts';
import { DATACENTER, PARTITIONS, START_MS } from './setting.ts';
import type { World } from './world.ts';

/** The header in which a request says which one it is; replies carry a copy. */
const TAG = 'traceparent';

/** The brokers: all topics, and the group. What lands here has happened, whoever learns of it. */
export class Brokers {
  readonly #world: World;
  readonly #history: History;
  readonly ledger: MemoryLedger;
  readonly witness = new MemoryWitness(DATACENTER);
  readonly requests: readonly RequestRecord[][] = Array.from({ length: PARTITIONS }, () => []);
  readonly group: Group;
  /** Called when entries land, whoever sent them. */
  onAppend: (partition: number, baseOffset: number, entries: readonly LedgerDraft[]) => void = () => {};
  /** Requests that have a reply. */
  readonly answered = new Set<string>();
  readonly #watchers = new Map<string, Array<() => void>>();

  constructor(world: World, history: History) {
    this.#world = world;
    this.#history = history;
    this.ledger = new MemoryLedger(PARTITIONS, () => this.nowMs());
    this.group = new Group(world);
  }

  /** The brokers' clock, which is right. */
  nowMs(): number {
    return Math.floor(START_MS + this.#world.nowMs);
  }

  append(partition: number, entries: readonly LedgerDraft[]): Appended {
    const appended = this.ledger.land(partition, entries);
    this.onAppend(partition, appended.baseOffset, entries);
    this.#world.note(() => `ledger ${partition}: ${entries.length} entries at ${appended.baseOffset}`);
    this.#grown(`ledger ${partition}`);
    return appended;
  }

  /** Drops the head of a ledger partition, as retention does. */
  trim(partition: number, low: number): void {
    this.ledger.trim(partition, low);
    this.#history.trims.push({ order: this.#world.tick(), partition, low });
    this.#world.note(() => `ledger ${partition}: trimmed to ${low}`);
  }

  /** Loses the tail of a ledger partition, as an election among brokers that lag does. */
  truncate(partition: number, from: number): void {
    this.ledger.truncate(partition, from);
    this.#history.losses.push({ order: this.#world.tick(), partition, from });
    this.#world.note(() => `ledger ${partition}: truncated to ${from}`);
  }

  ask(partition: number, request: Pick<RequestRecord, 'key' | 'value'>): number {
    const log = this.requests[partition] as RequestRecord[];
    const offset = log.length;
    log.push({ ...request, offset, headers: { [TAG]: `${partition}/${offset}` }, timestampMs: this.nowMs() });
    this.ledger.requestEnds.set(partition, log.length);
    this.#grown(`requests ${partition}`);
    return offset;
  }

  land(records: readonly OutgoingRecord[], sent: number): void {
    for (const { topic, key, value, headers } of records) {
      const tag = String(headers[TAG]);
      const [partition, offset] = tag.split('/').map(Number) as [number, number];
      const what = { topic, key: String(key), value: value as Buffer, reply: decodeIdReply(value as Buffer) };
      this.#history.told.push({ sent, landed: this.#world.tick(), partition, offset, ...what });
      this.answered.add(tag);
      this.#world.note(() => `${topic}: reply to ${tag}`);
    }
  }

  /** Tells once, a moment later, that a log has grown: what a waiting fetch of Kafka does. */
  whenGrown(log: string, run: () => void): void {
    const watchers = this.#watchers.get(log) ?? [];
    watchers.push(run);
    this.#watchers.set(log, watchers);
  }

  allDone(): boolean {
    const asked = this.requests.reduce((sum, { length }) => sum + length, 0);
    return asked === this.answered.size && this.requests.every((log, at) => this.group.furthest[at] === log.length);
  }

  #grown(log: string): void {
    const watchers = this.#watchers.get(log) ?? [];
    for (const run of watchers.splice(0)) this.#world.after(this.#world.rng.between(0.1, 1), run);
  }
}
