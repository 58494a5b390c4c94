import { descriptorOf } from '../../src/codec/namespace-values.ts';
import { type Ticks, type WallMs, wallMs } from '../../src/core/units.ts';
import { IdallocError } from '../../src/errors.ts';
import { bindingsOf } from '../../src/identity/bindings.ts';
import type { EtcdPort, WitnessPort } from '../../src/identity/identity-ports.ts';
import { openNamespace } from '../../src/identity/namespace.ts';
import { operatorsCode } from '../../src/identity/protocol.ts';
import { floorAbove, rebuildNamespace, type StoredNamespace } from '../../src/identity/rebuild.ts';
import { Cluster } from '../../src/kafka/wire/cluster.ts';
import { ledgerTail, startWitness } from '../../src/worker/ledger-tail.ts';
import type { Surroundings } from './host.ts';
import { Machine, type Process } from './machine.ts';
import { runtimeOf } from './runtime.ts';
import { keys, timing } from './setting.ts';
import type { Happening } from './world.ts';

export const OPERATOR = 'operator';
/** How often the operator checks, and how long until the first check. */
export const CHECK_MS = 5_000;
/**
 * Calls that a rebuild of a wiped etcd makes: in all, and those around its seal, up to where it has chosen the floor.
 */
const CALLS = 19;
const CALLS_AT_SEAL = { from: 8, to: 12 } as const;
/** The longest usual pause of a rebuild. */
const PAUSE_MS = 2_500;
const MAX_CRASHES = 3;
/** How far an operator's clock may be behind: longer than workers reserve ahead. */
const MAX_BEHIND_MS = 20_000;

/** The operator: rebuilds the namespace with the real code, is interrupted and tries again. */
export class Operator {
  readonly #around: Surroundings;
  readonly #stopWorkers: () => void;
  readonly #machine: Machine;
  isChecking = false;
  #next: Happening | undefined;
  #attempts = 0;
  #crashes = 0;

  /** `stopWorkers` is called when a rebuild is refused while workers hold worker IDs. */
  constructor(around: Surroundings, stopWorkers: () => void) {
    this.#around = around;
    this.#stopWorkers = stopWorkers;
    this.#machine = new Machine(around.world, OPERATOR);
  }

  /** Whether the operator is checking or will check again. */
  get isWatching(): boolean {
    return this.isChecking || this.#next !== undefined;
  }

  /**
   * Schedules a check, which then repeats at intervals. With `pausedUntilMs` that check is paused in the middle, until
   * then, and is not killed.
   */
  check(inMs: number, pausedUntilMs?: number): void {
    const { world } = this.#around;
    if (this.#next !== undefined) this.#next.cancelled = true;
    this.#next = world.after(inMs, () => {
      this.#next = undefined;
      this.#check(pausedUntilMs);
    });
  }

  /** One check, with a rebuild if needed, in a separate process, which may be killed in the middle. */
  #check(pausedUntilMs?: number): void {
    const { world } = this.#around;
    const { rng } = world;
    this.#attempts += 1;
    this.isChecking = true;
    const process = this.#machine.start();
    const next = (): void => {
      if (process.dead) return;
      process.crash();
      this.isChecking = false;
      this.check(rng.between(0.5, 1.5) * CHECK_MS);
    };
    const fails = new Map<number, () => void>();
    if (pausedUntilMs === undefined && this.#crashes < MAX_CRASHES && rng.chance(0.4)) {
      fails.set(rng.below(CALLS), () => {
        if (process.dead) return;
        this.#crashes += 1;
        world.note(() => `${process.name} is killed`);
        next();
      });
    }
    if (pausedUntilMs !== undefined || rng.chance(0.5)) {
      const { from, to } = pausedUntilMs === undefined ? { from: 0, to: CALLS } : CALLS_AT_SEAL;
      fails.set(from + rng.below(to - from), () =>
        this.#pause(process, pausedUntilMs ?? world.nowMs + rng.between(0, PAUSE_MS)),
      );
    }
    this.#checkAndRebuild(process, fails).then(next, (error: unknown) => {
      world.note(() => `${process.name}: ${error}`);
      if (!(error instanceof IdallocError)) this.#around.history.defects.push(String(error));
      if (error instanceof IdallocError && error.code === 'REBUILD_REFUSED') this.#stopWorkers();
      next();
    });
  }

  #pause(process: Process, untilMs: number): void {
    const { world } = this.#around;
    world.note(() => `${process.name} is paused until ${untilMs.toFixed(0)} ms`);
    process.freeze();
    world.after(untilMs - world.nowMs, () => process.thaw());
  }

  async #checkAndRebuild(process: Process, fails: ReadonlyMap<number, () => void>): Promise<void> {
    const { world, brokers, store } = this.#around;
    const { config } = brokers;
    const runtime = runtimeOf(world, this.#machine, process);
    const dialer = brokers.dialer(process, []);
    const cluster = new Cluster({ dialer, seeds: brokers.kafka.seeds, runtime });
    const tail = ledgerTail(cluster, runtime, () => {});
    let calls = 0;
    // When the interruption comes, the call may be in flight or already answered.
    const onCall = (): void => {
      const fail = fails.get(calls);
      calls += 1;
      if (fail !== undefined) world.after(world.rng.chance(0.5) ? 0 : world.rng.between(0, 5), fail);
    };
    const ports = {
      etcd: watched(
        store.port(process, () => () => {}),
        onCall,
      ),
      witness: watched(startWitness({ config, cluster, runtime, tail }), onCall),
    };
    try {
      await this.#rebuild(process, ports);
    } finally {
      await tail.close();
      await cluster.close();
    }
  }

  async #rebuild(process: Process, ports: { readonly etcd: EtcdPort; readonly witness: WitnessPort }): Promise<void> {
    const { world, brokers } = this.#around;
    const uuid = `00000000-0000-4000-8000-${String(this.#attempts).padStart(12, '0')}`;
    const wanted = descriptorOf(brokers.config, uuid);
    const bindings = bindingsOf(keys, brokers.config);
    try {
      await openNamespace({ ...ports, keys, wanted, bindings, newNonce: () => process.name.replace('.', '-') });
    } catch (error) {
      const damaged = error instanceof IdallocError && error.code === 'NAMESPACE_DAMAGED';
      if (operatorsCode(error) !== 'RESTORED' && !damaged) throw error;
      const now = wallMs(brokers.nowMs() - this.#behindMs());
      const floorOf = (found: StoredNamespace): Ticks => this.#floorOf(found, now);
      const { floor } = await rebuildNamespace({ ...ports, keys, wanted, bindings, floorOf });
      world.note(() => `${process.name} rebuilt the namespace from ${floor}`);
    }
  }

  /**
   * How far behind the operator's clock is. With a right one, what workers reserve ahead is below the floor in any
   * case.
   */
  #behindMs(): number {
    const { world, scenario } = this.#around;
    return scenario === 'late-witness' ? world.rng.between(0, MAX_BEHIND_MS) : 0;
  }

  #floorOf(found: StoredNamespace, now: WallMs): Ticks {
    const { world, history } = this.#around;
    const floor = floorAbove(world.layout, { found, ledger: undefined, now, reserveMs: timing.reserveMs });
    const known = new Map<string, number>();
    for (const { workerId, fence, ticks } of found.view.witnesses) {
      const term = `${workerId}/${fence}`;
      known.set(term, Math.max(ticks, known.get(term) ?? 0));
    }
    history.rebuilds.push({ order: world.tick(), floor, known, isWritten: false });
    return floor;
  }
}

/** Wraps a port so that `onCall` is called before each call. */
function watched<P extends EtcdPort | WitnessPort>(port: P, onCall: () => void): P {
  return new Proxy(port, {
    get: (target, name) => {
      const call: unknown = Reflect.get(target, name);
      if (typeof call !== 'function') return call;
      return (...args: unknown[]) => {
        onCall();
        return Reflect.apply(call, target, args);
      };
    },
  });
}
