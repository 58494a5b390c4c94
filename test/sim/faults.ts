import { BrokerFaults } from './broker-faults.ts';
import { Callers, hasCallers } from './callers.ts';
import { Clients } from './clients.ts';
import { chooseDisks } from './disk.ts';
import { Drifts } from './drifts.ts';
import { EachLoses } from './each-loses.ts';
import { EtcdLoss, FullEtcd } from './etcd-faults.ts';
import { Failovers } from './failovers.ts';
import { Growth, type Slot } from './growth.ts';
import { Host, type Surroundings } from './host.ts';
import { LedgerFaults } from './ledger-faults.ts';
import { Machine } from './machine.ts';
import { FAIR } from './network.ts';
import { overtakeWitnesses } from './overtaken-witness.ts';
import { hasReplays, Replays } from './replays.ts';
import { Rng } from './rng.ts';
import {
  aloneIn,
  isAimed,
  isCalm,
  keepsItsTime,
  losesEtcd,
  losesMachine,
  machinesIn,
  mayLoseLedger,
} from './scenario.ts';
import { lastStated } from './sequence-log.ts';
import { SequenceOperator } from './sequence-operator.ts';
import { SESSION_MS } from './setting.ts';
import { TailLosses } from './tail-losses.ts';
import { Volumes } from './volumes.ts';
import { ClockFaults, MAX_OFF_MS, TakeOvers, TwoOwners } from './worker-faults.ts';

/** Requests sent after the end of the faults. */
const LAST_REQUESTS = 8;
/** The time within which workers start that race for the namespace. */
const RACE_MS = 8;
/** How often a clock steps in the scenario that has only this fault. */
const NUDGES_MS = 3_000;
/** The share of simulations in which one worker is added later. */
const LATE = 0.3;
/** How often retention runs, and how often the ledger loses its tail in that scenario. */
const AGING_MS = 1_000;
const LOST_TAIL_MS = 6_000;
/** How often a worker is cut off from one broker in that scenario, and for how long at most. */
const CUT_OFF_MS = 5_000;
/** How often a machine goes to sleep in that scenario. */
const SLEEPS_MS = 3_000;
/** How often an operator changes a sequence. */
const REDEFINE_MS = 6_000;
const LONG_CUT_MS = 60_000;
/** The pool of one machine in the scenario with different configurations. */
const OTHER_POOL = { first: 0, last: 2 } as const;

/** All faults of workers, and their clients. Seeds differ in how often and how severe the faults are. */
export class Faults implements Disposable {
  readonly #around: Surroundings;
  readonly #slots: readonly Slot[];
  readonly #clients: Clients;
  readonly #brokerFaults: BrokerFaults;
  readonly #clockFaults: ClockFaults;
  readonly #ledgerFaults: LedgerFaults;
  readonly #etcdLoss: EtcdLoss | undefined;
  readonly #fullEtcd: FullEtcd | undefined;
  readonly #growth: Growth | undefined;
  readonly #takeOvers: TakeOvers | undefined;
  readonly #tailLosses: TailLosses | undefined;
  readonly #failovers: Failovers | undefined;
  readonly #volumes: Volumes | undefined;
  readonly #twoOwners: TwoOwners | undefined;
  readonly #eachLoses: EachLoses | undefined;
  readonly #replays: Replays | undefined;
  readonly #callers: Callers | undefined;
  readonly #drifts: Drifts | undefined;
  /** The workers that are to start once the operator lets them; undefined while they may. */
  #held: Set<Slot> | undefined;
  readonly #gapMs: number;
  readonly #actions: Array<(slot: Slot) => void>;
  #over = false;

  constructor(around: Surroundings) {
    this.#around = around;
    const { world, brokers, history } = around;
    const { rng } = world;
    this.#clients = new Clients(world, brokers, history);
    this.#brokerFaults = new BrokerFaults(around);
    this.#clockFaults = new ClockFaults(around, this.#clients);
    const workers = {
      kill: (process: string) => this.#kill(process),
      destroyOne: () => this.#crash(rng.pick(this.#slots), true),
      blindOne: (partition: number) => this.#blind(rng.pick(this.#slots), partition),
      killOwner: (partition: number) => this.#killOwner(partition),
    };
    this.#ledgerFaults = new LedgerFaults(around, this.#clients, workers, this.#brokerFaults);
    this.#gapMs = rng.between(600, 4_000);
    const isMixed = around.scenario === 'mixed';
    history.keepsItsTime = keepsItsTime(around.scenario);
    const alone = rng.chance(aloneIn(around.scenario));
    const { newDisk, sharesHashes } = chooseDisks(rng, around.scenario === 'volumes');
    history.sharesHashes = sharesHashes;
    const slots = Array.from(
      { length: alone ? 1 : machinesIn(around.scenario) },
      (_, i): Slot => ({ machine: new Machine(world, `m${i}`, i + 1, newDisk), host: undefined, isRetired: false }),
    );
    const others = { clients: this.#clients, served: slots, newDisk, start: (slot: Slot) => this.#start(slot) };
    this.#growth = around.scenario === 'growth' ? new Growth(around, others) : undefined;
    this.#slots = [...slots, ...(this.#growth?.slots ?? [])];
    // No clock is exact; a worker tolerates an error of less than half a second.
    for (const { machine } of this.#slots) {
      if (rng.chance(0.4)) this.#clockFaults.setAbout(machine);
    }
    const [first] = this.#slots;
    if (isMixed && first !== undefined) first.machine.pool = OTHER_POOL;
    around.store.holdsNaming = isMixed;
    this.#actions = this.#chooseActions();
    // By then every broker knows the topics.
    const startsMs = rng.between(50, 500);
    const late = rng.chance(LATE) && this.#actions.length > 0 && !isMixed ? slots.at(-1) : undefined;
    for (const slot of slots) {
      const inMs = isMixed ? startsMs + rng.between(0, RACE_MS) : rng.between(50, 500);
      world.after(
        slot === late && slot !== first ? rng.between(5_000, 30_000) : inMs,
        () => slot.host ?? this.#start(slot),
      );
    }
    if (around.scenario === 'each-loses') {
      this.#eachLoses = new EachLoses(around, this.#clients, {
        stopWorkers: () => this.#blackout(),
        askAgain: (partition, since) => this.#ledgerFaults.askAgain(partition, since),
      });
    } else if (losesEtcd(around.scenario)) {
      const loss = new EtcdLoss(around, {
        stopWorkers: () => this.#blackout(),
        send: () => this.#clients.send(),
        loseLedger: () => this.#ledgerFaults.truncate(),
      });
      this.#etcdLoss = loss;
      if (!isAimed(around.scenario)) this.#actions.push(() => loss.setBack());
    }
    if (around.scenario === 'overtaken-witness') overtakeWitnesses(around);
    if (around.scenario === 'take-over') {
      this.#takeOvers = new TakeOvers(around, this.#clients, {
        hosts: () => this.#slots.flatMap(({ host }) => host ?? []),
        kill: (process, backMs) => this.#kill(process, backMs),
      });
    }
    if (around.scenario === 'full-etcd') {
      const hosts = () => this.#slots.flatMap(({ host }) => host ?? []);
      this.#fullEtcd = new FullEtcd(around, { hosts, killOne: () => this.#crash(rng.pick(slots)) });
    }
    if (around.scenario === 'asleep') this.#repeat(SLEEPS_MS, () => this.#sleepAtRenewal(rng.pick(slots)));
    if (around.scenario === 'cut-off') this.#repeat(CUT_OFF_MS, () => this.#cutOff());
    if (!isCalm(around.scenario)) this.#changeWeather();
    if (around.scenario === 'lost-requests') {
      const faults = { ledger: this.#ledgerFaults, brokers: this.#brokerFaults };
      const hosts = () => slots.flatMap(({ host }) => host ?? []);
      this.#tailLosses = new TailLosses(
        around,
        this.#clients,
        { hosts, kill: (process, backMs) => this.#kill(process, backMs) },
        faults,
      );
    }
    if (around.scenario === 'two-owners') {
      this.#twoOwners = new TwoOwners(around, this.#clients, () => slots.flatMap(({ host }) => host ?? []));
    }
    if (around.scenario === 'volumes') {
      this.#volumes = new Volumes(around, {
        slots,
        crash: (slot, change, backMs) => this.#change(slot, change, backMs),
      });
    }
    if (around.scenario === 'failover') {
      const hosts = () => slots.flatMap(({ host }) => host ?? []);
      const workers = { hosts, blackout: () => this.#blackout() };
      this.#failovers = new Failovers(around, this.#clients, workers, this.#ledgerFaults);
    }
    if (world.hasSequences) {
      const sequences = new SequenceOperator(around);
      if (losesEtcd(around.scenario)) brokers.trimsAtMost = (partition) => lastStated(history, partition);
      this.#repeat(REDEFINE_MS, () => sequences.change());
    }
    if (hasReplays(around))
      this.#replays = new Replays(around, { hold: () => this.#hold(), release: () => this.#release() });
    if (hasCallers(around)) this.#callers = new Callers(around, () => this.#slots.flatMap(({ host }) => host ?? []));
    if (around.scenario === 'drift') {
      this.#drifts = new Drifts(
        around,
        slots.map(({ machine }) => machine),
      );
    }
    if (around.scenario === 'aging') this.#repeat(AGING_MS, () => this.#ledgerFaults.age());
    if (around.scenario === 'lost-tail') this.#repeat(LOST_TAIL_MS, () => this.#ledgerFaults.loseTail());
    if (around.scenario === 'clocks')
      this.#repeat(NUDGES_MS, () => this.#clockFaults.nudge(rng.pick(this.#slots).machine));
    this.#repeat(this.#gapMs, () => {
      if (this.#actions.length > 0) rng.pick(this.#actions)(rng.pick(this.#slots));
    });
    // What a worker appends shows it the brokers' clocks.
    if (around.scenario !== 'drift') this.#repeat(rng.between(200, 1_000), () => this.#clients.send());
  }

  /** Chooses the faults of this seed. */
  #chooseActions(): Array<(slot: Slot) => void> {
    const { world, brokers, scenario } = this.#around;
    const { rng } = world;
    if (isCalm(scenario)) return [];
    const all: ReadonlyArray<(slot: Slot) => void> = [
      (slot) => this.#crash(slot),
      (slot) => this.#freeze(slot),
      ({ machine }) => this.#clockFaults.step(machine),
      (slot) => this.#cut(slot, 'etcd', 20_000),
      (slot) => this.#cut(slot, 'kafka', 12_000),
      (slot) => this.#cut(slot, `kafka:${rng.pick(brokers.nodes)}`, 20_000),
      (slot) => this.#restart(slot),
      (slot) => this.#damage(slot),
      () => this.#blackout(),
      () => this.#around.store.expireOne(),
      ...(keepsItsTime(scenario) ? [] : [() => this.#ledgerFaults.trim()]),
      () => this.#changeWeather(),
      ...this.#brokerFaults.actions,
    ];
    const chosen = all.filter(() => rng.chance(isAimed(scenario) ? 0.2 : 0.6));
    if (rng.chance(0.2) && mayLoseLedger(scenario)) chosen.push(() => this.#ledgerFaults.truncate());
    return chosen;
  }

  /** Ends all faults but one, and restarts everything that is down; retention continues, since it is not a fault. */
  heal(): void {
    const { world, network, scenario } = this.#around;
    // No later fault can hide what a restore then meets.
    if (scenario === 'retention' && world.rng.chance(0.5)) this.#blackout();
    world.note(() => 'faults end');
    this.#over = true;
    network.weather = FAIR;
    this.#brokerFaults.heal();
    this.#ledgerFaults.heal();
    this.#etcdLoss?.heal();
    this.#fullEtcd?.heal();
    this.#takeOvers?.heal();
    this.#tailLosses?.heal();
    this.#failovers?.heal();
    this.#volumes?.heal();
    this.#twoOwners?.heal();
    this.#eachLoses?.heal();
    this.#replays?.heal();
    this.#callers?.heal();
    this.#drifts?.heal();
    for (const { machine, host } of this.#slots) {
      if (Math.abs(machine.stepMs) > MAX_OFF_MS) machine.stepMs = 0;
      host?.process.cut.clear();
      host?.process.thaw();
    }
    this.#loseMachine();
    for (let sent = 0; sent < LAST_REQUESTS; sent += 1) {
      world.after(world.rng.between(100, 1_000), () => this.#clients.send());
    }
    world.after(1_000, () => {
      this.#hasSentLast = true;
    });
  }

  #hasSentLast = false;

  /** In some seeds one machine does not come back, and the others answer what it leaves. */
  #loseMachine(): void {
    const { world, scenario, history } = this.#around;
    if (!losesMachine(world.seed, scenario) || this.#slots.length < 2) return;
    const slot = new Rng(world.seed).pick(this.#slots);
    world.note(() => `${slot.machine.name} is gone for good`);
    history.gone += 1;
    slot.isRetired = true;
    slot.host?.process.crash();
  }

  /** What is still missing before the simulation can end. */
  missing(): string[] {
    if (!this.#hasSentLast) return ['the last requests'];
    const idle = this.#slots.flatMap(({ machine, host, isRetired }) =>
      host?.isReady || machine.isMisfit || isRetired
        ? []
        : [`${machine.name} is not ready: ${host?.worker.unready ?? 'down'}`],
    );
    const unserved = this.#around.brokers.recorder.missing().map(({ what }) => what);
    return [
      ...idle,
      ...(this.#growth?.missing() ?? []),
      ...(this.#tailLosses?.missing() ?? []),
      ...(this.#failovers?.missing() ?? []),
      ...(this.#replays?.missing() ?? []),
      ...unserved,
    ];
  }

  /** Ends the simulation. */
  [Symbol.dispose](): void {
    for (const { machine } of this.#slots) machine[Symbol.dispose]();
    this.#volumes?.[Symbol.dispose]();
  }

  #repeat(meanMs: number, run: () => void): void {
    const { world } = this.#around;
    world.after(world.rng.between(0, 2 * meanMs), () => {
      if (this.#over) return;
      run();
      this.#repeat(meanMs, run);
    });
  }

  #start(slot: Slot): void {
    if (slot.isRetired) return;
    if (this.#held !== undefined) {
      this.#held.add(slot);
      return;
    }
    if (slot.host?.process.dead === false) throw new Error('two processes on one disk');
    const { world } = this.#around;
    const host: Host = new Host(this.#around, slot.machine, () => slot.host === host && this.#crash(slot));
    slot.host = host;
    world.note(() => `${host.process.name} starts`);
    // Worst for a single worker: no other worker's entries reveal it.
    if (!world.rng.chance(this.#slots.length === 1 ? 0.6 : 0.1) || keepsItsTime(this.#around.scenario)) return;
    this.#ledgerFaults.overtake(host.process.name);
  }

  /** Stops all workers, and starts none until `release`. Some are killed, and one that is frozen may go on later. */
  #hold(): void {
    const { rng } = this.#around.world;
    this.#held ??= new Set();
    for (const slot of this.#slots) {
      const isFrozen = slot.host?.process.running === false;
      if (isFrozen ? rng.chance(0.5) : rng.chance(0.3)) this.#crash(slot);
      else if (!isFrozen) this.#restart(slot);
    }
  }

  #release(): void {
    const held = this.#held ?? [];
    this.#held = undefined;
    for (const slot of held) if (slot.host === undefined || slot.host.process.dead) this.#start(slot);
  }

  #crash(slot: Slot, losesDisk?: boolean, backMs?: number): void {
    const { world } = this.#around;
    const { host, machine } = slot;
    if (host === undefined || host.process.dead) return;
    host.process.crash();
    const diskLost = losesDisk ?? world.rng.chance(0.3);
    if (diskLost) machine.loseDisk();
    // Only where it differs from a kill, since others' chances follow from each one.
    const powerLost = machine.disk.losePower !== undefined && world.rng.chance(0.5);
    if (powerLost) machine.disk.losePower?.();
    world.note(
      () => `${host.process.name} ${powerLost ? 'loses power' : 'crashes'}${diskLost ? ' and loses its disk' : ''}`,
    );
    world.after(backMs ?? world.rng.between(0, 5_000), () => slot.host === host && this.#start(slot));
  }

  /** Kills a process, and changes what its machine has. */
  #change(slot: Slot, change: () => void, backMs: number): void {
    const { host } = slot;
    if (host === undefined || host.process.dead) return;
    this.#around.world.note(() => `${host.process.name} is killed`);
    host.process.crash();
    change();
    this.#around.world.after(backMs, () => slot.host === host && this.#start(slot));
  }

  #blind(slot: Slot, partition: number): void {
    const { world, brokers } = this.#around;
    const { rng } = world;
    const leader = brokers.ledgerLeader(partition);
    const backMs = rng.between(3_000, 6_000);
    if (rng.chance(0.3)) this.#freeze(slot);
    else if (rng.chance(0.5)) this.#cut(slot, rng.chance(0.5) ? 'kafka' : `kafka:${leader}`, 6_000);
    else {
      // It restarts with its disk, and can't compare that with the log yet.
      this.#crash(slot, false, backMs);
      world.after(backMs + 1, () => this.#cut(slot, `kafka:${leader}`, 20_000));
    }
  }

  #killOwner(partition: number): void {
    const { brokers } = this.#around;
    const owns = ({ host }: Slot) => host && brokers.shareOf(host.process.name).partitions.includes(partition);
    const owner = this.#slots.find(owns);
    if (owner !== undefined) this.#crash(owner, false, SESSION_MS + 5_000);
  }

  #kill(process: string, backMs?: number): void {
    const slot = this.#slots.find(({ host }) => host?.process.name === process);
    // A worker that restarts late may have an empty disk, and warms up.
    if (slot !== undefined) this.#crash(slot, backMs === undefined ? false : undefined, backMs);
  }

  #blackout(): void {
    for (const slot of this.#slots) this.#crash(slot);
  }

  #restart(slot: Slot): void {
    const { host } = slot;
    if (host === undefined || !host.process.running || host.stopping) return;
    this.#around.world.note(() => `${host.process.name} gets SIGTERM`);
    void host.stop().then((stopped) => stopped && this.#start(slot));
  }

  #damage({ machine, host }: Slot): void {
    if (host !== undefined) this.#around.history.damaged.push(host.process.name);
    this.#around.world.note(() => `the disk of ${machine.name} is damaged`);
    machine.disk.damage();
  }

  #freeze({ host, machine }: Slot, isAsleep?: boolean): void {
    const { world } = this.#around;
    if (host === undefined || !host.process.running) return;
    const { process } = host;
    const forMs = world.rng.chance(0.5) ? world.rng.between(5, 3_000) : world.rng.between(3_000, 25_000);
    const asleep = isAsleep ?? world.rng.chance(0.3);
    world.note(() => `${process.name} freezes for ${forMs.toFixed(0)} ms${asleep ? ', its monotonic clock too' : ''}`);
    process.freeze();
    const sinceMs = world.nowMs;
    world.after(forMs, () => {
      if (process.dead || process.running || process.frozenAtMs !== sinceMs) return; // it was woken before
      if (asleep) machine.sleptMs += world.nowMs - sinceMs;
      world.note(() => `${process.name} resumes`);
      process.thaw();
    });
  }

  /** The machine sleeps when the next heartbeat of its worker was sent, and wakes with the answer. */
  #sleepAtRenewal(slot: Slot): void {
    const { host } = slot;
    if (host === undefined) return;
    host.onRenewing = () => {
      host.onRenewing = undefined;
      this.#around.world.after(1, () => this.#freeze(slot, true));
    };
  }

  /** One at a time, so that others reach the broker. */
  #cutOff(): void {
    const { world, brokers } = this.#around;
    if (this.#slots.some(({ host }) => host !== undefined && host.process.cut.size > 0)) return;
    this.#cut(world.rng.pick(this.#slots), `kafka:${world.rng.pick(brokers.nodes)}`, LONG_CUT_MS);
  }

  #cut({ host }: Slot, link: string, longestMs: number): void {
    const { world, history } = this.#around;
    if (host === undefined) return;
    const { process } = host;
    const forMs = world.rng.between(500, longestMs);
    world.note(() => `${process.name} is cut off from ${link} for ${forMs.toFixed(0)} ms`);
    process.cut.add(link);
    history.cuts.push({ process: process.name, link, untilMs: world.nowMs + forMs });
    world.after(forMs, () => process.cut.delete(link));
  }

  #changeWeather(): void {
    const { rng } = this.#around.world;
    const share = (most: number): number => (rng.chance(0.4) ? 0 : rng.between(0, most));
    // A rebuild must have started to be interrupted.
    const lost = share(isAimed(this.#around.scenario) ? 0.02 : 0.15);
    this.#around.network.weather = { lost, late: share(0.2), doubled: share(0.3) };
    this.#brokerFaults.changeWeather();
  }
}
