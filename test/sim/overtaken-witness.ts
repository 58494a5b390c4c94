import { recordsOf } from '../support/fake-kafka/batches.ts';
import { FAIR, type Fate, type Message } from '../support/fake-kafka/network.ts';
import type { Surroundings } from './host.ts';
import { WITNESS } from './setting.ts';

/**
 * The share of witnesses that are held, and for how long: their writers have stopped waiting, and written others since.
 */
const HELD = 0.1;
const HELD_MS = { from: 4_000, to: 15_000 } as const;

/** While the network has faults, holds witnesses of reservations on their way, so that later ones overtake them. */
export function overtakeWitnesses({ world, brokers }: Surroundings): void {
  brokers.meddlers.push((process: string, message: Message): Fate | undefined => {
    if (brokers.network.weather === FAIR || message.call !== 'produce' || message.way !== 'there') return undefined;
    const { topic, batch } = message.request;
    const isReservation = topic === WITNESS && recordsOf(batch)[0]?.value !== null;
    if (!isReservation || !world.rng.chance(HELD)) return undefined;
    const forMs = world.rng.between(HELD_MS.from, HELD_MS.to);
    world.note(() => `a witness of ${process} is held for ${forMs.toFixed(0)} ms`);
    return forMs;
  });
}
