import { EtcdLink } from './etcd-link.ts';
import type { Followed } from './followed.ts';
import { Load } from './load.ts';
import { Realm, type RealmOptions, type TestRequest } from './realm.ts';
import { type SuiteServers, suiteServers } from './servers.ts';
import { checkStops } from './stops.ts';
import { checkWholeHistory, type History, settledRecords } from './whole-history.ts';
import type { WorkerProcess } from './worker-process.ts';

type Env = Readonly<Record<string, string>>;

/** A realm whose replies and ledger are followed. */
export interface Followings {
  readonly servers: SuiteServers;
  readonly realm: Realm;
  readonly replies: Followed;
  readonly ledger: Followed;
}

export async function following(realm: Realm, servers: SuiteServers = suiteServers()): Promise<Followings> {
  const [replies, ledger] = await Promise.all([realm.follow(), realm.follow(realm.ledgerTopic)]);
  return { servers, realm, replies, ledger };
}

/** Workers on real servers, under a load if a test wants one, whose whole history can be checked. */
export class Scene implements AsyncDisposable {
  readonly servers: SuiteServers;
  readonly realm: Realm;
  readonly replies: Followed;
  readonly ledger: Followed;
  readonly workers: WorkerProcess[] = [];
  readonly #stack = new AsyncDisposableStack();

  protected constructor({ servers, realm, replies, ledger }: Followings) {
    this.servers = servers;
    this.realm = realm;
    this.replies = replies;
    this.ledger = ledger;
  }

  static async open(options: RealmOptions = {}, servers: SuiteServers = suiteServers()): Promise<Scene> {
    return new Scene(await following(await Realm.create(servers, options), servers));
  }

  start(env: Env = {}): WorkerProcess {
    const worker = this.realm.worker(env);
    this.workers.push(worker);
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
    const load = new Load(this.realm, { partitions: Number(this.realm.env.REQUEST_PARTITIONS), burst: 10, paceMs });
    try {
      await play(load);
    } finally {
      await load.stop();
    }
    const history = await this.history(load.requests, others);
    return { ...history, stops: checkStops(this.workers, this.replies, load.requests) };
  }

  /** Expects one batch for every request, and no ID twice. */
  history(requests: readonly TestRequest[], others: readonly bigint[] = []): Promise<History> {
    const ledger = () => settledRecords(this.realm, this.realm.ledgerTopic, this.ledger);
    return checkWholeHistory(this.realm, requests, this.replies, ledger, others);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.realm[Symbol.asyncDispose]();
    await this.#stack.disposeAsync();
  }
}
