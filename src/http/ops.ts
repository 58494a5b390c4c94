import { fastify } from 'fastify';
import type { Runtime } from '../async/runtime.ts';
import { formatHostPort } from '../core/host-port.ts';
import type { Layout } from '../core/layout.ts';
import { describeError, IdallocError } from '../errors.ts';
import { opsLimit } from './callers.ts';
import { Connections } from './connections.ts';
import { LoopShare } from './loop-share.ts';
import { checkEnvelope, checkLocalHost, Problem } from './problem.ts';
import { JSON_TYPE } from './respond.ts';
import { boundedServer } from './server.ts';
import { type DecodedStatus, decodeForStatus, type Status } from './status.ts';
import { STATUS_PAGE, STATUS_PAGE_HEADERS } from './status-page.ts';

/** The state that the listener exposes; it does not depend on the rest of the worker. */
export interface OpsOptions {
  readonly host: string;
  /** 0: any free port. */
  readonly port: number;
  /**
   * Whether requests are served, and if not, why: the reason is one of a fixed set, the detail is for people. The
   * warning is what needs an operator although they are.
   */
  readonly ready: () => {
    readonly ready: boolean;
    readonly reason?: string;
    readonly warning?: string | undefined;
    readonly detail?: string | undefined;
  };
  /** Whether a roll may go on to the next worker: this one is ready, and its standby copies are complete. */
  readonly complete: OpsOptions['ready'];
  /** Whether IDs are allocated over HTTP, which goes on while partitions wait. */
  readonly allocating: OpsOptions['ready'];
  /** Undefined while the worker is being created. */
  readonly status: () => Status | undefined;
  /** The layout of the IDs that the status page decodes. */
  readonly layout: Layout;
  readonly runtime: Pick<Runtime, 'monotonicMs' | 'sleep'>;
  readonly metrics: {
    render(): Promise<{ readonly contentType: string; readonly body: string }>;
    addShedConnection(listener: 'ops'): void;
  };
}

export interface Ops extends AsyncDisposable {
  readonly port: number;
}

const MAX_BODY_BYTES = 1_024;
/** Longer than an ID in any form. */
const MAX_ID_LENGTH = 200;
/** Answered at once: a probe that waits or is refused has a worker restarted. They cost as little as a refusal. */
const PROBES: readonly string[] = ['/healthz', '/readyz', '/readyz/copies', '/readyz/api'];
/** A response in progress waits for its turn or for a client that does not read: a probe is worth more. */
const LIMITS = { maxConnections: 64, requestTimeoutMs: 5_000, shedsResponses: true };

/**
 * The listener for health checks and metrics: /healthz answers 200 while the process responds, /readyz 200 while
 * requests are served and otherwise 503 with the reason, /readyz/copies 200 while a roll may go on, /readyz/api 200
 * while IDs are allocated over HTTP, /metrics the Prometheus text format, at most a second old. / is a page for people,
 * which polls /status, at most half a second old, and decodes IDs by /decode. A remote address that asks too often
 * waits for its turn. It stays open while the gate is closed, and no client can slow the worker down or keep probes
 * out. Disposing it cuts open connections, so it ends at once.
 *
 * @throws IdallocError CONFIG_INVALID when it cannot listen on the address.
 */
export async function startOps(options: OpsOptions): Promise<Ops> {
  const { host, port, ready, complete, allocating, status, layout, metrics, runtime } = options;
  const { monotonicMs } = runtime;
  const connections = new Connections(LIMITS, () => metrics.addShedConnection('ops'));
  const { requestTimeoutMs } = LIMITS;
  const share = new LoopShare(monotonicMs);
  const ended = new AbortController();
  const turn = opsLimit(runtime, ended.signal);
  const server = fastify({
    logger: false,
    bodyLimit: MAX_BODY_BYTES,
    forceCloseConnections: true,
    exposeHeadRoutes: true,
    serverFactory: (handler) =>
      boundedServer(handler, { connections, requestTimeoutMs, refused: () => undefined, share }),
    clientErrorHandler: () => undefined, // the server answers those itself
  });
  const render = sharedRendering(async () => {
    const { contentType, body } = await metrics.render();
    return { contentType, body: Buffer.from(body) };
  }, monotonicMs);
  const renderStatus = sharedRendering(
    async () => {
      const state = status();
      return state && Buffer.from(JSON.stringify(state));
    },
    monotonicMs,
    SHARED_STATUS_MS,
  );
  server.server.on('connection', () => share.accepted());
  server.addHook('onRequest', async ({ raw, routeOptions: { url = '' } }) => {
    checkEnvelope(raw);
    checkLocalHost(raw);
    if (!PROBES.includes(url)) await turn(raw);
  });
  server.setErrorHandler((error, _request, reply) => {
    if (!(error instanceof Problem)) throw error;
    return reply.code(error.status).headers(error.headers).send({ status: 'refused', detail: error.message });
  });
  server.addHook('onSend', async (_request, reply) => {
    reply.header('cache-control', 'no-store');
  });
  server.get('/healthz', async () => ({ status: 'alive' }));
  const looks = { '/readyz': ready, '/readyz/copies': complete, '/readyz/api': allocating };
  for (const [path, look] of Object.entries(looks)) {
    server.get(path, async (_request, reply) => {
      const { ready: open, reason = 'STARTING', warning, detail } = look();
      if (open) return { status: 'ready', warning, detail };
      return reply.code(503).send({ status: 'not ready', reason, detail });
    });
  }
  server.get('/metrics', async (_request, reply) => {
    const { contentType, body } = await render();
    return reply.type(contentType).send(body);
  });
  server.get('/', async (_request, reply) => reply.headers(STATUS_PAGE_HEADERS).send(STATUS_PAGE));
  server.get('/status', async (_request, reply) => {
    const body = await renderStatus();
    if (body === undefined) return reply.code(503).send({ status: 'not ready', reason: 'STARTING' });
    return reply.type(JSON_TYPE).send(body);
  });
  server.get<{ Querystring: { id?: unknown } }>('/decode', async ({ query: { id } }) => {
    if (typeof id !== 'string' || id.length > MAX_ID_LENGTH) throw new Problem(400, 'give one ID: /decode?id=…');
    return decoded(layout, id);
  });
  try {
    await server.listen({ host, port });
  } catch (error) {
    const message = `cannot listen on ${formatHostPort({ host, port })} (${describeError(error)}): set OPS_PORT to a free port, or correct OPS_HOST`;
    throw new IdallocError('CONFIG_INVALID', message, { cause: error });
  }
  const address = server.server.address();
  if (address === null || typeof address === 'string') throw new TypeError('a TCP listener has an address');
  const close = () => {
    ended.abort();
    return server.close();
  };
  return { port: address.port, [Symbol.asyncDispose]: close };
}

function decoded(layout: Layout, id: string): DecodedStatus {
  try {
    return decodeForStatus(layout, id);
  } catch (error) {
    if (error instanceof IdallocError || error instanceof RangeError) throw new Problem(400, error.message);
    throw error;
  }
}

/** How long renderings are shared after they started: of the metrics, and of the status. */
const SHARED_MS = 1_000;
const SHARED_STATUS_MS = 500;

/**
 * Renders at most once in `sharedMs`: calls in between share the last rendering. Later calls do not share a failure.
 */
export function sharedRendering<T>(
  render: () => Promise<T>,
  monotonicMs: () => number,
  sharedMs = SHARED_MS,
): () => Promise<T> {
  let last: { readonly beganMs: number; readonly result: Promise<T> } | undefined;
  let isRendering = false;
  return () => {
    const nowMs = monotonicMs();
    if (last !== undefined && (isRendering || nowMs - last.beganMs < sharedMs)) return last.result;
    isRendering = true;
    const result = render().finally(() => {
      isRendering = false;
    });
    last = { beganMs: nowMs, result };
    result.catch(() => {
      last = undefined;
    });
    return result;
  };
}
