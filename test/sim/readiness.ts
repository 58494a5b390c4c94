import { KAFKA_SILENCE_MS, type Worker } from '../../src/worker/worker.ts';
import type { CallObserver } from '../support/fake-kafka/network.ts';
import type { Place } from './host.ts';
import type { Machine, Process } from './machine.ts';
import { SESSION_MS } from './setting.ts';

const LOOK_MS = 250;
/** Time after which a removed member must know it: by its next heartbeat, or when none was answered for a session. */
const GRACE_MS = SESSION_MS + 2_000;

/**
 * Checks the readiness that a worker reports: brokers must have answered it recently, and the coordinator must list it
 * as a member.
 */
export class ReadinessProbe {
  readonly #place: Place;
  readonly #machine: Machine;
  readonly #process: Process;
  #answeredMs = Number.NEGATIVE_INFINITY;
  /** How long the process has run since the coordinator last listed it as a member. */
  #outMs = 0;

  constructor(place: Place, machine: Machine, process: Process) {
    this.#place = place;
    this.#machine = machine;
    this.#process = process;
  }

  /** Sees the answers that the process gets. */
  readonly observer: CallObserver = {
    sent: () => {},
    ended: (_call, _request, isAnswered) => {
      if (isAnswered) this.#answeredMs = this.#machine.read().mono;
    },
  };

  watch(worker: Worker): void {
    this.#process.after(LOOK_MS, () => {
      this.#look(worker);
      this.watch(worker);
    });
  }

  #look(worker: Worker): void {
    const { brokers, history, world } = this.#place;
    const members = brokers.cluster.groups.get(this.#machine.pair.group)?.members ?? [];
    const isMember = members.some(({ clientId }) => clientId === this.#process.name);
    this.#outMs = isMember ? 0 : this.#outMs + LOOK_MS;
    if (worker.unready !== undefined) return;
    if (this.#machine.isStray) history.strays.push(`${this.#process.name} was ready at ${world.nowMs.toFixed(0)} ms`);
    const silentMs = this.#machine.read().mono - this.#answeredMs;
    const when = `${this.#process.name} at ${world.nowMs.toFixed(0)} ms was ready`;
    if (silentMs > KAFKA_SILENCE_MS)
      history.falselyReady.push(`${when} after ${silentMs.toFixed(0)} ms without an answer from a broker`);
    if (this.#outMs > GRACE_MS) history.falselyReady.push(`${when} and had not been a member for ${this.#outMs} ms`);
  }
}
