import type { ProduceRequest, ProduceResponse } from './record-apis.ts';

/** A broker rejects requests above 100 MiB, and reads a whole request before it serves any of it. */
const MAX_BYTES = 8 * 1_048_576;

interface WaitingRequest {
  readonly request: ProduceRequest;
  readonly response: (response: Promise<ProduceResponse>) => void;
}

/** Sends record batches for different partitions as one request; resolves to their responses, in order. */
export type SendTogether = (requests: readonly ProduceRequest[]) => Promise<readonly ProduceResponse[]>;

/**
 * The requests of a connection on their way: one that the broker serves, and one that it serves next without waiting
 * for us. More would only wait there, each for a few of the calls that could have shared one.
 */
const MAX_IN_FLIGHT = 2;

/**
 * Combines produce calls into few requests: those of one turn of the event loop, and those that come while others are
 * on their way. Brokers serve the requests of a connection one after another, so one that waits for followers blocks
 * those queued after it; within one request the waits overlap, and the fixed cost of a request, most of that of a small
 * one, is paid once.
 */
export class ProduceQueue {
  readonly #send: SendTogether;
  readonly #due: WaitingRequest[] = [];
  #inFlight = 0;
  #isScheduled = false;

  constructor(send: SendTogether) {
    this.#send = send;
  }

  produce(request: ProduceRequest): Promise<ProduceResponse> {
    return new Promise((response) => {
      this.#due.push({ request, response });
      this.#schedule();
    });
  }

  #schedule(): void {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    setImmediate(() => {
      this.#isScheduled = false;
      while (this.#due.length > 0 && this.#inFlight < MAX_IN_FLIGHT) this.#sendNext();
    });
  }

  #sendNext(): void {
    const together = this.#due.splice(0, lengthOfFirst(this.#due));
    this.#inFlight += 1;
    const responses = this.#send(together.map(({ request }) => request));
    together.forEach(({ response }, i) => {
      response(responses.then((all) => all[i] as ProduceResponse));
    });
    const ended = () => {
      this.#inFlight -= 1;
      if (this.#due.length > 0) this.#schedule();
    };
    responses.then(ended, ended);
  }
}

/** How many calls the next request takes, in order: a request has each partition at most once. */
function lengthOfFirst(due: readonly WaitingRequest[]): number {
  let bytes = 0;
  const partitions = new Set<string>();
  for (const [i, { request }] of due.entries()) {
    const name = `${request.topic}/${request.partition}`;
    bytes += request.batch.length;
    if (partitions.has(name) || (i > 0 && bytes > MAX_BYTES)) return i;
    partitions.add(name);
  }
  return due.length;
}
