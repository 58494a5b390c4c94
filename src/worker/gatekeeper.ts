import {
  clearGate,
  closedGate,
  closeGate,
  type Gate,
  type GateReason,
  type GateSource,
  gateReason,
  graceExpired,
} from '../core/gate.ts';
import type { MonoMs } from '../core/units.ts';
import type { Log } from '../log.ts';

export interface GatekeeperOptions {
  readonly now: () => MonoMs;
  readonly log: Log;
}

/** Called after each change of the gate's reason; undefined means open. */
export type GateListener = (reason: GateReason | undefined) => void;

/** Holds the worker's gate, logs its changes and notifies listeners. */
export class Gatekeeper {
  readonly #options: GatekeeperOptions;
  readonly #listeners: GateListener[] = [];
  #gate: Gate;
  /** What was said of the reason of each source, for people. */
  readonly #details = new Map<GateSource, string | undefined>();

  constructor(options: GatekeeperOptions) {
    this.#options = options;
    this.#gate = closedGate(options.now());
  }

  /** Listeners are called in registration order, in the same turn as the change. */
  onChange(listener: GateListener): void {
    this.#listeners.push(listener);
  }

  /** Why the gate is closed; undefined when it is open. */
  reason(): GateReason | undefined {
    return gateReason(this.#gate);
  }

  /** What was said last of the reason why it is closed; undefined for nothing. */
  detail(): string | undefined {
    const reason = this.reason();
    const [source] = [...this.#gate.reasons].find(([, held]) => held === reason) ?? [];
    return source === undefined ? undefined : this.#details.get(source);
  }

  close(source: GateSource, reason: GateReason, detail?: string): void {
    this.#details.set(source, detail);
    this.#set(closeGate(this.#gate, source, reason, this.#options.now()), detail);
  }

  clear(source: GateSource): void {
    this.#set(clearGate(this.#gate, source, this.#options.now()));
  }

  /** Whether the gate has been closed so long that the partitions should move to another worker. */
  graceExpired(graceMs: number): boolean {
    return graceExpired(this.#gate, this.#options.now(), graceMs);
  }

  #set(gate: Gate, detail?: string): void {
    const before = gateReason(this.#gate);
    this.#gate = gate;
    const reason = gateReason(gate);
    if (reason === before) return;
    const { log } = this.#options;
    if (reason === undefined) log.info('gate open');
    else if (before === undefined) log.warn({ reason, detail }, 'gate closed');
    else log.info({ reason, detail }, 'gate closed, reason changed');
    for (const listener of this.#listeners) listener(reason);
  }
}
