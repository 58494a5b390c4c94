import type { Process } from './machine.ts';
import type { World } from './world.ts';

export type Link = 'etcd' | 'kafka';

/** Fault rates of the network; each is a probability for one copy of one message. */
export interface Weather {
  readonly lost: number;
  /** Late by up to a few seconds or, a tenth as often, later than every timeout. */
  readonly late: number;
  readonly doubled: number;
}

export const FAIR: Weather = { lost: 0, late: 0, doubled: 0 };

interface Call<R> {
  readonly link: Link;
  readonly name: string;
  /** What the server does when a copy of the request arrives; throws to refuse. */
  readonly effect: () => R;
  readonly timeoutMs: number;
  readonly noAnswer: () => Error;
  /** How long the first copy of the request takes, whatever the faults. */
  readonly heldMs?: number | undefined;
}

/**
 * The network between processes and servers. A call is sent once or twice, as by clients that hedge or retry. Each copy
 * that arrives takes effect then, and the first answer counts. So an abandoned call may have taken effect, may take
 * effect later, and may take effect twice.
 */
export class Network {
  readonly #world: World;
  weather: Weather = FAIR;

  constructor(world: World) {
    this.#world = world;
  }

  call<R>(from: Process, { link, name, effect, timeoutMs, noAnswer, heldMs }: Call<R>): Promise<R> {
    const { rng } = this.#world;
    return new Promise((resolve, reject) => {
      let open = true;
      const end = (how: () => void): void => {
        if (!open) return;
        open = false;
        timer.cancelled = true;
        how();
      };
      const timer = from.after(timeoutMs, () => end(() => reject(noAnswer())));
      const send = (inMs?: number): void =>
        this.#carry(
          from,
          link,
          () => `${name} of ${from.name}`,
          () => {
            const outcome = attempt(effect);
            this.#world.note(
              () => `${from.name} ${link} ${name}${'error' in outcome ? ` refused: ${outcome.error}` : ''}`,
            );
            this.#carry(
              from,
              link,
              () => `answer to ${name} of ${from.name}`,
              () =>
                from.deliver(() => end(() => ('error' in outcome ? reject(outcome.error) : resolve(outcome.value)))),
            );
          },
          inMs,
        );
      send(heldMs);
      if (rng.chance(this.weather.doubled)) this.#world.after(rng.between(0, 2 * timeoutMs), () => send());
    });
  }

  /** Carries one message in one direction. */
  #carry(from: Process, link: Link, what: () => string, arrive: () => void, inMs?: number): void {
    const { rng } = this.#world;
    if (inMs === undefined && rng.chance(this.weather.lost)) {
      this.#world.note(() => `lost: ${what()}`);
      return;
    }
    const late = rng.chance(this.weather.late);
    const delayMs = !late ? rng.between(0.1, 3) : rng.chance(0.1) ? rng.between(4_000, 20_000) : rng.between(5, 4_500);
    this.#world.after(inMs ?? delayMs, () => {
      if (from.cut.has(link)) this.#world.note(() => `cut off: ${what()}`);
      else arrive();
    });
  }
}

function attempt<R>(effect: () => R): { readonly value: R } | { readonly error: unknown } {
  try {
    return { value: effect() };
  } catch (error) {
    return { error };
  }
}
