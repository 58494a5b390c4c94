import { describeError, IdallocError } from '../../errors.ts';

/** How long a call may take in all, and after how long without an answer the next endpoint is asked too. */
export interface RotationTiming {
  readonly callMs: number;
  readonly hedgeMs: number;
}

export interface Peer {
  readonly endpoint: string;
}

/** What one peer said instead of an answer; the call itself may still be served by another. */
export type OnFault = (what: string, endpoint: string, error: unknown) => void;

/** One question to one peer. The signal aborts when the call is over, so that what is still open can be torn down. */
export type Ask<P, R> = (peer: P, signal: AbortSignal) => Promise<R>;

/**
 * Asks peers one after another until one answers. The peer that answered last is asked first; the next one is asked at
 * once after a failure, and after hedgeMs of silence. When all were asked they are asked again, one each hedgeMs: a
 * member may hold on to what it forwarded to a leader that has died, and answers the same question a second later.
 * The first answer wins; later ones are dropped. Timers run by the monotonic clock, so that a stepped wall clock neither
 * stretches nor cuts a call.
 *
 * isFinal tells the errors that are the cluster's own answer: no other peer would say anything else.
 */
export class Rotation<P extends Peer> {
  readonly #peers: readonly P[];
  readonly #timing: RotationTiming;
  readonly #isFinal: (error: unknown) => boolean;
  readonly #onFault: OnFault;
  #preferred = 0;

  constructor(peers: readonly P[], timing: RotationTiming, isFinal: (error: unknown) => boolean, onFault: OnFault) {
    this.#peers = peers;
    this.#timing = timing;
    this.#isFinal = isFinal;
    this.#onFault = onFault;
  }

  /** The first answer, or IdallocError ETCD_UNAVAILABLE that names every endpoint asked and what it said. */
  run<R>(what: string, ask: Ask<P, R>): Promise<R> {
    const order = this.#peers.map((_, index) => (this.#preferred + index) % this.#peers.length);
    const over = new AbortController();
    const said = new Map<string, string>();

    return new Promise<R>((resolve, reject) => {
      let asked = 0;
      let open = 0;
      let hedge: NodeJS.Timeout | undefined;
      const limit = setTimeout(() => fail(undefined), this.#timing.callMs);

      const close = () => {
        clearTimeout(hedge);
        clearTimeout(limit);
        over.abort();
      };
      const fail = (cause: unknown) => {
        close();
        const faults = order.slice(0, asked).flatMap((index) => this.#peers[index]?.endpoint ?? []);
        const listed = faults.map((endpoint) => `${endpoint}: ${said.get(endpoint) ?? 'no answer'}`);
        reject(new IdallocError('ETCD_UNAVAILABLE', message(what, this.#timing.callMs, listed), { cause }));
      };
      const askNext = () => {
        const index = order[asked % order.length];
        const peer = index === undefined ? undefined : this.#peers[index];
        if (index === undefined || peer === undefined) return;
        asked += 1;
        open += 1;
        clearTimeout(hedge);
        hedge = setTimeout(askNext, this.#timing.hedgeMs);
        ask(peer, over.signal).then(
          (answer) => {
            if (over.signal.aborted) return;
            this.#preferred = index;
            close();
            resolve(answer);
          },
          (error: unknown) => {
            if (over.signal.aborted) return;
            open -= 1;
            said.set(peer.endpoint, describeError(error));
            this.#onFault(what, peer.endpoint, error);
            if (this.#isFinal(error)) fail(error);
            else if (asked < order.length) askNext();
            else if (open === 0) fail(error);
          },
        );
      };
      askNext();
    });
  }
}

function message(what: string, callMs: number, faults: readonly string[]): string {
  const said = faults.join('; ') || 'no endpoint configured';
  return `etcd did not serve ${what} within ${callMs} ms (${said}). Check that the endpoints are right and healthy.`;
}
