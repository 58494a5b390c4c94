import http2 from 'node:http2';
import type { AddressInfo } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';

/**
 * A proxy between one client and one gRPC server without TLS, in the test's own process. It forwards everything by
 * default.
 */
export interface GrpcProxy {
  /** http://host:port, to use in place of the server's address. */
  readonly endpoint: string;
  /** The number of answers dropped since the start. */
  readonly dropped: number;
  /**
   * Lets the next `times` calls through, waits for the server's answer, drops it, and cuts the client's connection: the
   * call took effect, and the client can't know.
   *
   * @param method as in the path: `/etcdserverpb.KV/Txn`
   * @param matches selects calls by the bytes of the request received so far; all by default
   * @returns resolves when the last answer was dropped
   */
  dropAnswers(method: string, times: number, matches?: (request: Buffer) => boolean): Promise<void>;
  /** Delays each answer; 0 ends the delay. */
  slow(delayMs: number): void;
  /** Holds every call until `release`, as a network that carries nothing. */
  hold(): void;
  release(): void;
  /** Cuts all connections and every new one. */
  block(): void;
  unblock(): void;
  /** When the last call of this method arrived whose answer was passed on, by the monotonic clock. */
  lastServedMs(method: string): number | undefined;
  close(): Promise<void>;
}

interface Drop {
  readonly method: string;
  readonly matches: (request: Buffer) => boolean;
  /** Calls still to be selected, and answers still to be dropped. */
  open: number;
  pending: number;
  readonly done: () => void;
}

const KEPT_REQUEST_BYTES = 1 << 20;
const { HTTP2_HEADER_PATH, NGHTTP2_CANCEL, NGHTTP2_INTERNAL_ERROR, NGHTTP2_FLAG_END_STREAM } = http2.constants;

/** Keeps what the client sends on a stream, for `matches`. */
function keepRequest(stream: http2.ServerHttp2Stream): () => Buffer {
  const chunks: Buffer[] = [];
  let length = 0;
  stream.on('data', (chunk: Buffer) => {
    if (length >= KEPT_REQUEST_BYTES) return;
    chunks.push(chunk);
    length += chunk.length;
  });
  return () => Buffer.concat(chunks);
}

/** Trailers may arrive while the answer is delayed. */
function keepTrailers(answer: http2.ClientHttp2Stream): () => http2.IncomingHttpHeaders {
  let trailers: http2.IncomingHttpHeaders = {};
  answer.on('trailers', (received) => {
    trailers = received;
  });
  return () => trailers;
}

/** Passes an answer on: headers, messages, and the trailers, which have the gRPC status. */
function passAnswer(
  answer: http2.ClientHttp2Stream,
  client: http2.ServerHttp2Stream,
  head: http2.IncomingHttpHeaders,
  flags: number,
  trailers: () => http2.IncomingHttpHeaders,
): void {
  if (client.destroyed) return;
  if ((flags & NGHTTP2_FLAG_END_STREAM) !== 0) {
    client.respond(head, { endStream: true });
    return;
  }
  client.on('wantTrailers', () => client.sendTrailers(trailers()));
  client.respond(head, { waitForTrailers: true });
  answer.pipe(client);
}

/** Starts a proxy in front of a server such as `http://127.0.0.1:2379`. */
export async function startGrpcProxy(upstream: string): Promise<GrpcProxy> {
  const sessions = new Set<http2.Http2Session>();
  const drops: Drop[] = [];
  const served = new Map<string, number>();
  let dropped = 0;
  let blocked = false;
  let delayMs = 0;
  let held: PromiseWithResolvers<void> | undefined;

  const choose = (method: string, request: Buffer): Drop | undefined => {
    const drop = drops.find((each) => each.open > 0 && each.method === method && each.matches(request));
    if (drop !== undefined) drop.open -= 1;
    return drop;
  };

  const swallow = (answer: http2.ClientHttp2Stream, session: http2.Http2Session | undefined, drop: Drop): void => {
    let over = false;
    const cut = () => {
      if (over) return;
      over = true;
      dropped += 1;
      drop.pending -= 1;
      session?.destroy();
      if (drop.pending === 0) drop.done();
    };
    answer.once('data', cut);
    answer.once('close', cut);
    if (answer.closed) cut();
  };

  const forward = async (
    client: http2.ServerHttp2Stream,
    headers: http2.IncomingHttpHeaders,
    server: http2.ClientHttp2Session,
  ) => {
    const method = String(headers[HTTP2_HEADER_PATH]);
    const cameMs = performance.now();
    client.on('error', () => undefined); // a call that is cancelled while it is held
    if (held !== undefined) await held.promise;
    if (client.destroyed || server.destroyed) return client.close(NGHTTP2_INTERNAL_ERROR);
    const request = keepRequest(client);
    const answer = server.request(headers);
    const trailers = keepTrailers(answer);
    client.pipe(answer);
    answer.once('response', async (head, flags) => {
      if (delayMs > 0) await pause(delayMs);
      if (held !== undefined) await held.promise;
      const drop = choose(method, request());
      if (drop !== undefined) return swallow(answer, client.session, drop);
      if (!client.destroyed) served.set(method, Math.max(cameMs, served.get(method) ?? 0));
      passAnswer(answer, client, head, flags, trailers);
    });
    answer.once('error', () => client.close(NGHTTP2_INTERNAL_ERROR));
    client.once('error', () => answer.close(NGHTTP2_CANCEL));
    client.once('aborted', () => answer.close(NGHTTP2_CANCEL));
  };

  const proxy = http2.createServer();
  proxy.on('session', (session) => {
    // A connection that this proxy cut is reported here too.
    session.on('error', () => session.destroy());
    if (blocked) {
      session.destroy();
      return;
    }
    const server = http2.connect(upstream);
    sessions.add(session);
    session.once('close', () => {
      sessions.delete(session);
      server.destroy();
    });
    server.on('error', () => session.destroy());
    server.once('close', () => session.destroy());
    session.on('stream', (client: http2.ServerHttp2Stream, headers: http2.IncomingHttpHeaders) => {
      void forward(client, headers, server);
    });
  });
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve));
  const cutAll = () => {
    for (const session of sessions) session.destroy();
  };
  return {
    endpoint: `http://127.0.0.1:${(proxy.address() as AddressInfo).port}`,
    get dropped() {
      return dropped;
    },
    dropAnswers(method, times, matches = () => true) {
      return new Promise((done) => {
        drops.push({ method, matches, open: times, pending: times, done });
      });
    },
    slow(ms) {
      delayMs = ms;
    },
    hold() {
      held ??= Promise.withResolvers<void>();
    },
    release() {
      held?.resolve();
      held = undefined;
    },
    lastServedMs: (method) => served.get(method),
    block() {
      blocked = true;
      cutAll();
    },
    unblock() {
      blocked = false;
    },
    async close() {
      cutAll();
      await new Promise<void>((resolve) => proxy.close(() => resolve()));
    },
  };
}
