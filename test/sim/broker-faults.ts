import { FAIR } from '../support/fake-kafka/network.ts';
import type { Surroundings } from './host.ts';
import { FIRST, type Pair } from './pairs.ts';
import { Rng } from './rng.ts';
import { keepsItsTime, losesEtcd } from './scenario.ts';
import { REPLY_TOPICS, WITNESS } from './setting.ts';

/** Join errors that are not caused by the member. */
const REFUSALS = ['UNKNOWN', 'GROUP_COORDINATOR_NOT_AVAILABLE', 'REBALANCE_IN_PROGRESS'] as const;

/** One in so many seeds has partitions that are added by mistake, and when. */
const SEEDS_WITH_ADDED = 6;
const ADDED_MS = { from: 2_000, to: 20_000 } as const;
/** Requests that clients with the new count send to the added partition, and the time in which they do. */
const STRAYS = 6;
const STRAYS_MS = 30_000;

/** Where etcd loses what it has, or has no agreed count, no worker may start on more partitions. */
function addsPartitions({ world, scenario }: Surroundings): boolean {
  return world.seed % SEEDS_WITH_ADDED === 2 && scenario !== 'mixed' && !losesEtcd(scenario);
}

/** In one seed of so many, a broker's clock is set wrong for a while. */
const SEEDS_WITH_FAR_OFF = 3;
/** How far that is off, by a typing error or at a boot: beyond any margin. */
const FAR_MS = [3_600_000, 31_536_000_000] as const;

/** Faults of brokers and their data. Only one broker of several has a fault at a time, so that the others can serve. */
export class BrokerFaults {
  readonly #around: Surroundings;
  #refusedJoins = 0;
  #ill: number | undefined;
  /** The broker whose clock is far off. */
  #farOff: number | undefined;

  constructor(around: Surroundings) {
    this.#around = around;
    const { world, brokers } = around;
    brokers.cluster.refuses = (call) => {
      if (call !== 'joinGroup' || this.#refusedJoins === 0 || !world.rng.chance(this.#refusedJoins)) return undefined;
      return world.rng.pick(REFUSALS);
    };
    if (addsPartitions(around)) this.#addPartitions(new Rng(world.seed));
  }

  get actions(): readonly (() => void)[] {
    return [
      () => this.#crash(),
      () => this.#freeze(),
      () => this.#blackHole(),
      () => this.#moveLeaders(),
      () => this.#moveCoordinator(),
      () => this.#lag(),
      () => this.#stepClock(),
      ...(this.#mayBeFarOff ? [() => this.#setClock()] : []),
      // While a tail is lost, an operator who moves the offset decides what is read.
      ...(this.#around.scenario === 'lost-requests' ? [] : [() => this.#meddleWithGroup()]),
      ...(keepsItsTime(this.#around.scenario) ? [] : [() => this.#trimRequests()]),
      () => this.#makeLateTopic(),
    ];
  }

  /**
   * An operator adds partitions by mistake, once a worker has an identity: workers that run and those that start serve
   * the ones from before, and forward what comes to the others. The random numbers are its own, so that no other fault
   * of the seed changes.
   */
  #addPartitions(rng: Rng): void {
    const { world, brokers, history, scenario } = this.#around;
    world.after(rng.between(ADDED_MS.from, ADDED_MS.to), () => {
      if (history.grants.length === 0) return this.#addPartitions(rng);
      const { ledger, requests, partitions } = FIRST; // nobody may have agreed on the count of a second pair yet
      for (const topic of rng.pick([[requests], [ledger], [requests, ledger]])) {
        brokers.cluster.growTopic(topic, partitions + 1);
        world.note(() => `${topic} gets a partition more`);
      }
      // Where a second pair takes over, the workers of the first stop.
      if (scenario === 'growth' || !brokers.cluster.topics.get(requests)?.partitions[partitions]) return;
      for (let sent = 0; sent < STRAYS; sent += 1) {
        world.after(rng.between(0, STRAYS_MS), () => brokers.sendToAdded(`stray${sent}`));
      }
    });
  }

  changeWeather(): void {
    const { rng } = this.#around.world;
    const share = (most: number): number => (rng.chance(0.5) ? 0 : rng.between(0, most));
    this.#refusedJoins = share(0.5);
    this.#around.brokers.network.weather = {
      lost: share(0.03),
      // A delayed witness is most dangerous when it arrives after etcd was rolled back.
      late: share(losesEtcd(this.#around.scenario) ? 0.15 : 0.05),
      reset: share(0.03),
      doubled: share(0.3),
      refused: share(0.2),
      lateCommits: share(0.5),
    };
  }

  /** Ends all faults, and restarts brokers that are down. */
  heal(): void {
    const { cluster, network, nodes } = this.#around.brokers;
    this.#refusedJoins = 0;
    network.weather = FAIR;
    network.blackHoled.clear();
    for (const node of nodes) {
      cluster.broker(node).clockErrorMs = 0;
      cluster.thaw(node);
      cluster.restart(node);
    }
    for (const topic of cluster.topics.values()) {
      for (const partition of topic.partitions) {
        partition.lagging = false;
        partition.replicate();
      }
    }
  }

  #crash(): void {
    const { cluster } = this.#around.brokers;
    this.#fall('crashes', (node) => {
      cluster.crash(node);
      return () => cluster.restart(node);
    });
  }

  /** Freezes the leader of a ledger partition, if there is one and no other broker has a fault. */
  freezeLeader(partition: number): void {
    const leader = this.#around.brokers.ledgerLeader(partition);
    if (leader !== -1) this.#freeze(leader);
  }

  /** All brokers are away for a while, if none has a fault already; `meanwhile` happens just before they restart. */
  restartAll(meanwhile: () => void): boolean {
    const { world, brokers } = this.#around;
    const { cluster, nodes } = brokers;
    if (this.#ill !== undefined || nodes.some((node) => cluster.broker(node).state !== 'up')) return false;
    const forMs = world.rng.between(500, 6_000);
    world.note(() => `all brokers crash for ${forMs.toFixed(0)} ms`);
    this.#ill = nodes[0];
    for (const node of nodes) cluster.crash(node);
    world.after(forMs, () => {
      this.#ill = undefined;
      meanwhile();
      for (const node of nodes) cluster.restart(node);
      // Those that started before their leaders follow them now.
      for (const node of nodes) cluster.unfence(node);
    });
    return true;
  }

  #freeze(which?: number): void {
    const { cluster } = this.#around.brokers;
    const { rng } = this.#around.world;
    const begin = (node: number) => {
      cluster.freeze(node);
      return () => {
        if (rng.chance(0.5)) cluster.deafen(node, rng.between(0, 3_000));
        cluster.thaw(node);
      };
    };
    this.#fall('freezes', begin, which);
  }

  /** Makes a broker unreachable for all clients, as if frozen; other brokers may still reach it, or not. */
  #blackHole(): void {
    const { cluster, network } = this.#around.brokers;
    const { rng } = this.#around.world;
    this.#fall('is black-holed', (node) => {
      network.blackHoled.add(node);
      if (rng.chance(0.5)) cluster.fence(node);
      return () => {
        network.blackHoled.delete(node);
        cluster.unfence(node);
      };
    });
  }

  /** Starts a fault of one broker, and ends it after a while. */
  #fall(how: string, begin: (node: number) => () => void, which?: number): void {
    const { world, brokers } = this.#around;
    const { rng } = world;
    if (this.#ill !== undefined) return;
    const node = which ?? rng.pick(brokers.nodes);
    this.#ill = node;
    const forMs = rng.chance(0.5) ? rng.between(50, 2_000) : rng.between(2_000, 25_000);
    world.note(() => `broker ${node} ${how} for ${forMs.toFixed(0)} ms`);
    const end = begin(node);
    world.after(forMs, () => {
      this.#ill = undefined;
      world.note(() => `broker ${node} is healthy again`);
      end();
    });
  }

  #moveLeaders(): void {
    const { world, brokers } = this.#around;
    const { cluster, nodes } = brokers;
    const { rng } = world;
    const to = rng.pick(nodes);
    if (rng.chance(0.5)) cluster.deafen(rng.pick(nodes), rng.between(0, 5_000));
    for (const topic of topicsOf(brokers.pairs)) {
      for (const { number } of cluster.topics.get(topic)?.partitions ?? []) {
        if (rng.chance(0.5)) cluster.moveLeader(topic, number, to);
      }
    }
    world.note(() => `broker ${to} leads more`);
  }

  #moveCoordinator(): void {
    const { world, brokers } = this.#around;
    for (const { group } of brokers.pairs) {
      brokers.cluster.moveCoordinator(group);
      world.note(() => `the coordinator of ${group} moves to ${brokers.cluster.groups.coordinators.get(group)}`);
    }
  }

  /** Makes replicas fall behind, so that an append waits for them. */
  #lag(): void {
    const { world, brokers } = this.#around;
    const { rng } = world;
    const topic = rng.pick(topicsOf(brokers.pairs));
    const partition = rng.pick(brokers.cluster.topics.get(topic)?.partitions ?? []);
    partition.lagging = true;
    world.note(() => `copies of ${topic}/${partition.number} lag`);
    world.after(rng.between(100, 7_000), () => {
      partition.lagging = false;
      partition.replicate();
    });
  }

  #stepClock(): void {
    const { world, brokers, history } = this.#around;
    const { rng } = world;
    const node = rng.pick(brokers.nodes);
    if (node === this.#farOff) return;
    const broker = brokers.cluster.broker(node);
    broker.clockErrorMs = rng.chance(0.3) ? 0 : Math.round(rng.between(-1, 1) * rng.pick([50, 400, 3_000]));
    history.brokersOffMs = Math.max(history.brokersOffMs, Math.abs(broker.clockErrorMs));
    world.note(() => `the clock of broker ${node} is off by ${broker.clockErrorMs} ms`);
  }

  /** Where retention goes by the brokers' clocks, they are right enough. */
  get #mayBeFarOff(): boolean {
    const { brokers, scenario, world } = this.#around;
    return world.seed % SEEDS_WITH_FAR_OFF === 1 && brokers.nodes.length === 3 && !keepsItsTime(scenario);
  }

  /** Sets the clock of one broker far off for a while; those of the others are right enough. */
  #setClock(): void {
    const { world, brokers, history } = this.#around;
    const { rng } = world;
    if (this.#farOff !== undefined) return;
    history.isBrokerFarOff = true;
    const node = rng.pick(brokers.nodes);
    this.#farOff = node;
    const byMs = rng.pick(FAR_MS) * (rng.chance(0.5) ? 1 : -1);
    const forMs = rng.between(1_000, 20_000);
    brokers.cluster.broker(node).clockErrorMs = byMs;
    world.note(() => `the clock of broker ${node} is set wrong by ${byMs} ms for ${forMs.toFixed(0)} ms`);
    world.after(forMs, () => {
      this.#farOff = undefined;
      brokers.cluster.broker(node).clockErrorMs = 0;
      world.note(() => `the clock of broker ${node} is right again`);
    });
  }

  #meddleWithGroup(): void {
    if (this.#around.world.rng.chance(0.3)) this.#convertGroup();
    else this.#resetOffsets();
  }

  /**
   * Sets committed offsets back or deletes them, as an operator does, or moves them past waiting requests, as a foreign
   * consumer.
   */
  #resetOffsets(): void {
    const { world, brokers } = this.#around;
    const { rng } = world;
    const partition = rng.below(brokers.partitions);
    const committed = brokers.committed(partition) ?? 0;
    const { high } = brokers.bounds('requests', partition);
    const offset = rng.chance(0.4) ? high : rng.below(committed + 1);
    brokers.resetOffsets(partition, rng.chance(0.3) ? undefined : offset);
  }

  /**
   * A consumer of Kafka's new group protocol is in the group for a while, and commits what it has read of some
   * partitions.
   */
  #convertGroup(): void {
    const { world, brokers } = this.#around;
    const { rng } = world;
    const { group: groupId, first, partitions } = rng.pick(brokers.pairs);
    const group = brokers.cluster.groups.get(groupId);
    if (group === undefined) return;
    world.note(() => `a foreign consumer converts group ${groupId}`);
    group.convert('foreign');
    world.after(rng.between(1_000, 15_000), () => {
      for (let partition = first; partition < first + partitions; partition += 1)
        if (rng.chance(0.3)) brokers.resetOffsets(partition, brokers.bounds('requests', partition).high);
      group.revert();
      world.note(() => `the foreign consumer leaves group ${groupId}`);
    });
  }

  /** Trims requests: mostly answered ones, sometimes unread ones. */
  #trimRequests(): void {
    const { world, brokers } = this.#around;
    const { rng } = world;
    const partition = rng.below(brokers.partitions);
    const { low, high } = brokers.bounds('requests', partition);
    const committed = brokers.committed(partition) ?? low;
    const upTo = rng.chance(0.2) ? high : Math.max(low, Math.min(high, committed));
    brokers.trimRequests(partition, low + rng.below(upTo - low + 1));
  }

  #makeLateTopic(): void {
    this.#around.brokers.makeLateTopic();
    this.#around.world.note(() => 'the late reply topic is created');
  }
}

/** All topics that workers of these pairs use. */
function topicsOf(pairs: readonly Pair[]): readonly string[] {
  const own = pairs.flatMap(({ ledger, requests }) => [ledger, requests]);
  return [...own, WITNESS, ...pairs.map(({ deadLetters }) => deadLetters), ...REPLY_TOPICS];
}
