import type { Clients } from './clients.ts';
import type { Surroundings } from './host.ts';
import { CHECK_MS, Operator } from './operator.ts';
import { FIRST } from './pairs.ts';
import { rowsOf } from './sequence-log.ts';
import { SEQUENCES } from './setting.ts';

/** The time before the first loss, and between losses at least. */
const FIRST_MS = 5_000;
const REST_MS = 2_000;
const LOOK_MS = 500;
const REQUESTS_MS = 300;
const MOST_LOST = 12;

interface Others {
  readonly stopWorkers: () => void;
  /** Sends some of the correlation IDs again that were decided. */
  readonly askAgain: (partition: number, since: number) => void;
}

/**
 * Kafka and etcd lose what they have, in turns, and nothing else fails. Before each loss, the other one remembers all
 * that was decided, and nothing is under way: so no number may be given twice, however often that happens.
 */
export class EachLoses {
  readonly #around: Surroundings;
  readonly #clients: Clients;
  readonly #others: Others;
  readonly #operator: Operator;
  readonly #backups: Array<() => void> = [];
  #isOver = false;
  #next: 'ledger' | 'etcd';

  constructor(around: Surroundings, clients: Clients, others: Others) {
    this.#around = around;
    this.#clients = clients;
    this.#others = others;
    this.#operator = new Operator(around, others.stopWorkers);
    const { world } = around;
    this.#next = world.rng.pick(['ledger', 'etcd']);
    this.#clients.takeNumbersUntil(() => this.#isOver, REQUESTS_MS);
    world.after(FIRST_MS, () => this.#look());
  }

  heal(): void {
    this.#isOver = true;
  }

  #look(): void {
    if (this.#isOver) return;
    const { world, store } = this.#around;
    const { rng } = world;
    if (!(this.#next === 'ledger' ? this.#doesEtcdRemember() : this.#doesLogRemember())) {
      world.after(LOOK_MS, () => this.#look());
      return;
    }
    if (this.#next === 'ledger') this.#loseLedger();
    else this.#loseEtcd();
    if (rng.chance(0.5)) this.#backups.push(store.backUp());
    this.#next = this.#next === 'ledger' ? 'etcd' : 'ledger';
    world.after(REST_MS, () => this.#look());
  }

  #loseLedger(): void {
    const { world, brokers } = this.#around;
    const { rng } = world;
    const partition = rng.below(FIRST.partitions);
    const { low, high } = brokers.bounds('ledger', partition);
    brokers.truncate(partition, Math.max(low, high - 1 - rng.below(MOST_LOST)));
    if (rng.chance(0.3)) this.#others.stopWorkers();
    this.#others.askAgain(partition, 0);
  }

  /** All workers are stopped before, so that nothing of theirs is under way. */
  #loseEtcd(): void {
    const { world, store, history } = this.#around;
    const { rng } = world;
    this.#others.stopWorkers();
    world.note(() => 'etcd is rolled back');
    history.setBacks.push(world.tick());
    store.setBack(this.#backups.length > 0 && rng.chance(0.5) ? rng.pick(this.#backups) : undefined);
    if (!this.#operator.isWatching) this.#operator.check(rng.between(0, CHECK_MS));
  }

  /** Whether etcd alone excludes that numbers are given out again, and remembers every order. */
  #doesEtcdRemember(): boolean {
    const rows = rowsOf(this.#around.history);
    return SEQUENCES.every((name) => {
      const [row, head] = [rows.get(name), this.#around.store.headOf(name)];
      if (row === undefined || row.gap > 0 || head === undefined) return false;
      return head.next >= row.next && head.edition >= row.edition;
    });
  }

  /** Whether the ledger alone does. */
  #doesLogRemember(): boolean {
    const rows = rowsOf(this.#around.history);
    return SEQUENCES.every((name) => {
      const [row, head] = [rows.get(name), this.#around.store.headOf(name)];
      if (row === undefined || row.gap > 0) return false;
      return head === undefined || (row.next >= head.next && row.edition >= head.edition);
    });
  }
}
