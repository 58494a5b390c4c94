import { DESCRIPTOR_FORMAT_VERSION, type Descriptor, decodeCeiling } from '../../src/codec/namespace-values.ts';
import type { Verdict } from '../../src/core/clock-guard.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { DEFAULT_TIMING, type LeaseTiming } from '../../src/core/reservation.ts';
import { monoMs, type Reading, wallMs } from '../../src/core/units.ts';
import { type Bound, bindingsOf } from '../../src/identity/bindings.ts';
import { Identity } from '../../src/identity/identity.ts';
import { namespaceKeys } from '../../src/identity/keys.ts';
import { type Namespace, openNamespace } from '../../src/identity/namespace.ts';
import type { IdentitySettings, IdentityState } from '../../src/identity/state.ts';
import { guardedReading } from '../support/guarded-reading.ts';
import { MemoryWitness } from '../support/memory-witness.ts';
import { FakeEtcd, type Fault, goodLink, type Link } from './fake-etcd.ts';

export const layout = presetLayout('default');
export const keys = namespaceKeys('/keyspace', 4);
export const timing: LeaseTiming = DEFAULT_TIMING;

export const BOUND: Bound = {
  idSpace: 'id',
  datacenterId: 4,
  groupId: 'idalloc',
  topics: { requests: 'id.requests', ledger: 'id.ledger', requestPartitions: 12 },
};
export const bindings = bindingsOf(keys, BOUND);

/** A moment well inside the layout. */
const START_MS = layout.epochMs + 1_000_000_000;

export function descriptorOf(changes: Partial<Descriptor> = {}): Descriptor {
  return {
    formatVersion: DESCRIPTOR_FORMAT_VERSION,
    layoutName: layout.name,
    layoutFingerprint: layout.fingerprint,
    epochMs: layout.epochMs,
    datacenterId: 4,
    pool: { first: 0, last: 2 },
    uuid: '01234567-89ab-4cde-8f01-23456789abcd',
    ...changes,
  };
}

/** The clocks of one host: time passes for all hosts alike, and the wall clock of each may step. */
export class HostClock {
  readonly #now: () => number;
  stepMs = 0;
  verdict: Verdict = { kind: 'steady' };

  constructor(now: () => number) {
    this.#now = now;
  }

  read(): Reading {
    return { wall: wallMs(START_MS + this.#now() + this.stepMs), mono: monoMs(500 + this.#now()) };
  }
}

export interface Host {
  readonly identity: Identity;
  readonly clock: HostClock;
  /** Faults of the next calls, by call name; each is used once. */
  readonly faults: Map<string, Fault[]>;
  readonly states: IdentityState[];
  authority(): ReturnType<Identity['authority']>;
}

/** One etcd, one namespace, and hosts on one time line that only `pass` moves. */
export class Stage {
  nowMs = 0;
  readonly etcd = new FakeEtcd(() => this.nowMs);
  readonly witness = new MemoryWitness(4);
  #nonces = 0;
  #leases = 1n << 40n;

  static async open(changes: Partial<Descriptor> = {}): Promise<Stage> {
    const stage = new Stage();
    await stage.open(changes);
    return stage;
  }

  open(changes: Partial<Descriptor> = {}): Promise<Namespace> {
    const ports = { etcd: this.etcd.port(), witness: this.witness.port() };
    return openNamespace({ ...ports, keys, wanted: descriptorOf(changes), bindings, newNonce: () => 'init' });
  }

  pass(ms: number): void {
    this.nowMs += ms;
  }

  ceiling(workerId: number): { ticks: number; nonce: string } {
    const kv = this.etcd.peek(keys.ceiling(workerId));
    if (!kv) throw new Error(`no ceiling ${workerId}`);
    return decodeCeiling(kv.value);
  }

  newClock(): HostClock {
    return new HostClock(() => this.nowMs);
  }

  async host(
    changes: Partial<IdentitySettings> = {},
    link: Link = goodLink,
    clock: HostClock = this.newClock(),
  ): Promise<Host> {
    const faults = new Map<string, Fault[]>();
    const states: IdentityState[] = [];
    const etcd = this.etcd.port(async (name) => {
      const fault = faults.get(name)?.shift();
      return fault ? { fault } : await link(name);
    });
    const settings: IdentitySettings = {
      etcd,
      witness: this.witness.port(),
      keys,
      bindings,
      layout,
      timing,
      namespace: changes.namespace ?? (await this.open()),
      readClock: () => guardedReading(clock.read(), clock.verdict),
      random: () => 0,
      newNonce: () => `n${++this.#nonces}`,
      newLeaseId: () => ++this.#leases,
      workerIp: '127.0.0.1',
      onChange: (state) => states.push(state),
      log: () => {},
      ...changes,
    };
    const identity = new Identity(settings);
    return { identity, clock, faults, states, authority: () => identity.authority(clock.read()) };
  }
}
