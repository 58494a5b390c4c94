import type { ProduceRequest, ProduceResponse } from './record-apis.ts';

/** A broker rejects requests above 100 MiB, and reads a whole request before it serves any of it. */
const MAX_BYTES = 8 * 1_048_576;

interface Due {
  readonly request: ProduceRequest;
  readonly response: (response: Promise<ProduceResponse>) => void;
}

/** Sends record batches for different partitions as one request; resolves to their responses, in order. */
export type SendTogether = (requests: readonly ProduceRequest[]) => Promise<readonly ProduceResponse[]>;

/**
 * Combines the produce calls of one turn of the event loop into one request. Brokers serve the requests of a connection
 * one after another, so one that waits for followers blocks those queued after it; within one request the waits overlap.
 */
export class ProduceQueue {
  readonly #send: SendTogether;
  #due: Due[] = [];

  constructor(send: SendTogether) {
    this.#send = send;
  }

  produce(request: ProduceRequest): Promise<ProduceResponse> {
    return new Promise((response) => {
      if (this.#due.length === 0) setImmediate(() => this.#flush());
      this.#due.push({ request, response });
    });
  }

  #flush(): void {
    const due = this.#due;
    this.#due = [];
    for (const together of cut(due)) {
      const responses = this.#send(together.map(({ request }) => request));
      together.forEach(({ response }, i) => {
        response(responses.then((all) => all[i] as ProduceResponse));
      });
    }
  }
}

/** In order, and as few requests as possible: a request has each partition at most once. */
function* cut(due: readonly Due[]): Generator<readonly Due[]> {
  let together: Due[] = [];
  let bytes = 0;
  const partitions = new Set<string>();
  for (const one of due) {
    const { topic, partition, batch } = one.request;
    const name = `${topic}/${partition}`;
    if (partitions.has(name) || (together.length > 0 && bytes + batch.length > MAX_BYTES)) {
      yield together;
      together = [];
      bytes = 0;
      partitions.clear();
    }
    partitions.add(name);
    bytes += batch.length;
    together.push(one);
  }
  yield together;
}
