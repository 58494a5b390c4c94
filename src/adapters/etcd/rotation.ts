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
interface PeerFault {
  readonly what: string;
  readonly endpoint: string;
  readonly error: unknown;
  /** What an operator has to do about it; undefined for what may pass by itself. */
  readonly remedy: string | undefined;
}

export type OnFault = (fault: PeerFault) => void;

/** What errors mean. */
export interface Judgement {
  /** The cluster's own answer: no other peer would say anything else. */
  readonly isFinal: (error: unknown) => boolean;
  readonly remedyOf: (error: unknown) => string | undefined;
}

const UNHEALTHY = 'check that the endpoints are right and healthy';

/** One question to one peer. The signal aborts when the call is over, so that what is still open can be torn down. */
export type Ask<P, R> = (peer: P, signal: AbortSignal) => Promise<R>;

/**
 * Asks peers one after another until one answers. The peer that answered last is asked first; the next one is asked at
 * once after a failure, and after hedgeMs of silence. When all were asked they are asked again, one each hedgeMs: a
 * member may hold on to what it forwarded to a leader that has died, and answers the same question a second later.
 * The first answer wins; later ones are dropped. Timers run by the monotonic clock, so that a stepped wall clock neither
 * stretches nor cuts a call.
 */
export class Rotation<P extends Peer> {
  readonly #peers: readonly P[];
  readonly #timing: RotationTiming;
  readonly #judgement: Judgement;
  readonly #onFault: OnFault;
  /** By endpoint, until it answers: a client may say why it has no connection once, and then only that it has none. */
  readonly #remedies = new Map<string, string>();
  #preferred = 0;
  #fault: IdallocError | undefined;

  constructor(peers: readonly P[], timing: RotationTiming, judgement: Judgement, onFault: OnFault) {
    this.#peers = peers;
    this.#timing = timing;
    this.#judgement = judgement;
    this.#onFault = onFault;
  }

  /** Why the last call failed; undefined when it was answered. */
  get fault(): IdallocError | undefined {
    return this.#fault;
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
        const remedies = new Set(faults.flatMap((endpoint) => this.#remedies.get(endpoint) ?? []));
        const text = message(what, this.#timing.callMs, listed, [...remedies].join('; ') || UNHEALTHY);
        this.#fault = new IdallocError('ETCD_UNAVAILABLE', text, { cause });
        reject(this.#fault);
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
            this.#fault = undefined;
            this.#remedies.delete(peer.endpoint);
            close();
            resolve(answer);
          },
          (error: unknown) => {
            if (over.signal.aborted) return;
            open -= 1;
            const { endpoint } = peer;
            const remedy = this.#judgement.remedyOf(error) ?? this.#remedies.get(endpoint);
            said.set(endpoint, describeError(error));
            if (remedy !== undefined) this.#remedies.set(endpoint, remedy);
            this.#onFault({ what, endpoint, error, remedy });
            if (this.#judgement.isFinal(error)) fail(error);
            else if (asked < order.length) askNext();
            else if (open === 0) fail(error);
          },
        );
      };
      askNext();
    });
  }
}

function message(what: string, callMs: number, faults: readonly string[], remedy: string): string {
  const said = faults.join('; ') || 'no endpoint configured';
  return `etcd did not serve ${what} within ${callMs} ms (${said}): ${remedy}`;
}
