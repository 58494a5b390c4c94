import { IdallocError } from '../../errors.ts';

/** The time limit of a call, and the silence after which the next endpoint is called, too. */
export interface RotationTiming {
  readonly callMs: number;
  readonly hedgeMs: number;
}

export const DEFAULT_ETCD_TIMING: RotationTiming = { callMs: 4_000, hedgeMs: 1_000 };

export interface Peer {
  readonly endpoint: string;
}

/** The failure of one peer; another one may still serve the call. */
interface PeerError {
  readonly what: string;
  readonly endpoint: string;
  /** The error as text. */
  readonly error: string;
  /** How an operator fixes it; undefined for a transient error. */
  readonly remedy: string | undefined;
}

export type OnError = (error: PeerError) => void;

/** Classifies errors. */
export interface ErrorClassifier {
  /** The cluster's response, which every peer would return. */
  readonly isFinal: (error: unknown) => boolean;
  /** A response that the call is not carried out. Any other error leaves open whether it was, or will be. */
  readonly isRefusal: (error: unknown) => boolean;
  readonly remedyOf: (error: unknown) => string | undefined;
  /** The error as text, for operators. */
  readonly textOf: (error: unknown) => string;
}

const UNHEALTHY = 'check that ETCD_ENDPOINTS is correct and its members are healthy';
const SEE_LOG = "look for the cause in etcd's log";

/** Calls one peer. The signal aborts when the whole call has ended, to cancel calls still open. */
export type PeerCall<P, R> = (peer: P, signal: AbortSignal) => Promise<R>;

/**
 * Calls peers one after another until one answers. The peer that answered last goes first; the next one follows
 * immediately after a failure, or after hedgeMs of silence. After the last peer the round starts again, one call per
 * hedgeMs: a member may hang on a call that it forwarded to a dead leader, and answer a repeated one a second later.
 * The first response wins; later ones are dropped. Timers use the monotonic clock, so that a wall clock step neither
 * extends nor shortens a call.
 */
export class Rotation<P extends Peer> {
  readonly #peers: readonly P[];
  readonly #timing: RotationTiming;
  readonly #classifier: ErrorClassifier;
  readonly #onError: OnError;
  readonly #onReturn: (endpoint: string) => void;
  /** The endpoints whose last call failed. */
  readonly #failing = new Set<string>();
  /**
   * The last error that has a remedy, by endpoint, until that answers: a client may report why it cannot connect once,
   * and later only that it is not connected.
   */
  readonly #causes = new Map<string, { readonly text: string; readonly remedy: string }>();
  #preferred = 0;
  #lastError: IdallocError | undefined;

  constructor(
    peers: readonly P[],
    timing: RotationTiming,
    classifier: ErrorClassifier,
    onError: OnError,
    onReturn: (endpoint: string) => void = () => {},
  ) {
    this.#peers = peers;
    this.#timing = timing;
    this.#classifier = classifier;
    this.#onError = onError;
    this.#onReturn = onReturn;
  }

  /** Why the last call failed; undefined when it succeeded. */
  get lastError(): IdallocError | undefined {
    return this.#lastError;
  }

  /**
   * Calls every peer at the same time. Resolves with the responses, by endpoint, once each call has settled: a call
   * must have its own time limit. Errors are reported, and those with a remedy remembered, as those of `run`.
   */
  async onEach<R>(what: string, call: (peer: P) => Promise<R>): Promise<ReadonlyMap<string, R>> {
    const responses = new Map<string, R>();
    const callOne = async (peer: P) => {
      try {
        responses.set(peer.endpoint, await call(peer));
        this.#answered(peer);
      } catch (error) {
        this.#failed(what, peer, error);
      }
    };
    await Promise.all(this.#peers.map(callOne));
    return responses;
  }

  /**
   * The first response. Rejects with an IdallocError that names every endpoint called and its error: ETCD_REFUSED when
   * each call was answered, ETCD_UNAVAILABLE when one of them was not, and so may take effect later.
   */
  run<R>(what: string, call: PeerCall<P, R>): Promise<R> {
    const order = this.#peers.map((_, index) => (this.#preferred + index) % this.#peers.length);
    const over = new AbortController();
    const errors = new Map<string, string>();

    return new Promise<R>((resolve, reject) => {
      let calls = 0;
      let open = 0;
      let isAnswered = true;
      let hedge: NodeJS.Timeout | undefined;
      const limit = setTimeout(() => expire(), this.#timing.callMs);

      const close = () => {
        clearTimeout(hedge);
        clearTimeout(limit);
        over.abort();
      };
      const fail = (cause: unknown) => {
        close();
        const called = order.slice(0, calls).flatMap((index) => this.#peers[index]?.endpoint ?? []);
        const listed = called.map((endpoint) => `${endpoint}: ${errors.get(endpoint) ?? 'no response'}`);
        const remedies = new Set(called.flatMap((endpoint) => this.#causes.get(endpoint)?.remedy ?? []));
        const isRefused = isAnswered && open === 0 && calls > 0;
        const failure = isRefused ? `refused ${what}` : `did not serve ${what} within ${this.#timing.callMs} ms`;
        const causes = listed.join('; ') || 'no endpoint configured';
        const remedy = [...remedies].join('; ') || (isRefused ? SEE_LOG : UNHEALTHY);
        const text = `etcd ${failure} (${causes}): ${remedy}`;
        this.#lastError = new IdallocError(isRefused ? 'ETCD_REFUSED' : 'ETCD_UNAVAILABLE', text, { cause });
        reject(this.#lastError);
      };
      /** Endpoints that have said nothing are reported, too. */
      const expire = () => {
        for (const index of new Set(order.slice(0, calls))) {
          const peer = this.#peers[index];
          if (peer !== undefined && !errors.has(peer.endpoint))
            this.#failed(what, peer, new Error(`no response in ${this.#timing.callMs} ms`));
        }
        fail(undefined);
      };
      const callNext = () => {
        const index = order[calls % order.length];
        const peer = index === undefined ? undefined : this.#peers[index];
        if (index === undefined || peer === undefined) return;
        calls += 1;
        open += 1;
        clearTimeout(hedge);
        hedge = setTimeout(callNext, this.#timing.hedgeMs);
        call(peer, over.signal).then(
          (response) => {
            if (over.signal.aborted) return;
            this.#preferred = index;
            this.#lastError = undefined;
            this.#answered(peer);
            close();
            resolve(response);
          },
          (error: unknown) => {
            if (over.signal.aborted) return;
            open -= 1;
            errors.set(peer.endpoint, this.#failed(what, peer, error));
            isAnswered &&= this.#classifier.isRefusal(error);
            if (this.#classifier.isFinal(error)) fail(error);
            else if (calls < order.length) callNext();
            else if (open === 0) fail(error);
          },
        );
      };
      callNext();
    });
  }

  #answered({ endpoint }: P): void {
    this.#causes.delete(endpoint);
    if (this.#failing.delete(endpoint)) this.#onReturn(endpoint);
  }

  /** Reports the error of a call. Returns it as text, with its cause if that was reported before. */
  #failed(what: string, { endpoint }: P, error: unknown): string {
    const text = this.#classifier.textOf(error);
    this.#failing.add(endpoint);
    const remedy = this.#classifier.remedyOf(error);
    const cause = remedy === undefined ? this.#causes.get(endpoint) : { text, remedy };
    if (cause !== undefined) this.#causes.set(endpoint, cause);
    this.#onError({ what, endpoint, error: text, remedy: cause?.remedy });
    return cause === undefined || cause.text === text ? text : `${text}, after: ${cause.text}`;
  }
}
