import { EtcdLink } from './etcd-link.ts';
import type { Followed } from './followed.ts';
import { Load } from './load.ts';
import { Realm, type RealmOptions } from './realm.ts';
import { type SuiteServers, suiteServers } from './servers.ts';
import { checkStops } from './stops.ts';
import { checkWholeHistory, type History, settledRecords } from './whole-history.ts';
import type { WorkerProcess } from './worker-process.ts';

type Env = Readonly<Record<string, string>>;

/** A realm whose replies and ledger are followed, with workers behind separate links to etcd, and a load. */
export class Scene implements AsyncDisposable {
  readonly servers: SuiteServers;
  readonly realm: Realm;
  readonly replies: Followed;
  readonly #ledger: Followed;
  readonly #partitions: number;
  readonly #workers: WorkerProcess[] = [];
  readonly #stack = new AsyncDisposableStack();

  private constructor(servers: SuiteServers, realm: Realm, replies: Followed, ledger: Followed, partitions: number) {
    this.servers = servers;
    this.realm = realm;
    this.replies = replies;
    this.#ledger = ledger;
    this.#partitions = partitions;
  }

  static async open(options: RealmOptions = {}, servers: SuiteServers = suiteServers()): Promise<Scene> {
    const partitions = options.partitions ?? 3;
    const realm = await Realm.create(servers, { ...options, partitions });
    const [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
    return new Scene(servers, realm, replies, ledger, partitions);
  }

  get workers(): readonly WorkerProcess[] {
    return this.#workers;
  }

  worker(env: Env = {}): WorkerProcess {
    const worker = this.realm.worker(env);
    this.#workers.push(worker);
    return worker;
  }

  /** A link to etcd for one worker; pass its `env` to that worker. */
  async link(): Promise<EtcdLink> {
    return this.#stack.use(await EtcdLink.open(this.servers));
  }

  /**
   * Runs `play` under load, then waits until every request is answered and checks the whole history.
   *
   * @param others IDs that `play` got in other ways than over the ledger
   */
  async underLoad(
    play: (load: Load) => Promise<unknown>,
    paceMs = 50,
    others: readonly bigint[] = [],
  ): Promise<History & { readonly stops: number }> {
    const load = new Load(this.realm, { partitions: this.#partitions, burst: 10, paceMs });
    try {
      await play(load);
    } finally {
      await load.stop();
    }
    const ledger = () => settledRecords(this.realm, this.realm.ledgerTopic, this.#ledger);
    const history = await checkWholeHistory(this.realm, load.requests, this.replies, ledger, others);
    return { ...history, stops: checkStops(this.#workers, this.replies, load.requests) };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.realm[Symbol.asyncDispose]();
    await this.#stack.disposeAsync();
  }
}
