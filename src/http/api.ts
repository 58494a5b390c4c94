import type { IncomingMessage } from 'node:http';
import compress from '@fastify/compress';
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from 'fastify';
import { ANONYMOUS, type Caller, type Identify } from './callers.ts';
import { type ConnectionLimits, Connections } from './connections.ts';
import { REQUEST_ID, requestIdOf, TRACE_PARENT, traceParentOf } from './correlation.ts';
import { docsPage, PAGE_HEADERS } from './docs-page.ts';
import { addIdRoute, addIdRoutes, addSequenceRoute, type IdRoutesOptions, SEQUENCES } from './id-routes.ts';
import { openApiDocument } from './openapi.ts';
import { takeBodies } from './parameters.ts';
import { checkEnvelope, checkLocalHost, MAX_URL_LENGTH, malformed, PROBLEM_TYPE, Problem } from './problem.ts';
import { COMPRESSION, respond } from './respond.ts';
import { boundedServer } from './server.ts';
import type { TlsSettings } from './tls-server.ts';

/** One answered request; the route is one of a closed set. */
export interface HandledRequest {
  readonly route: string;
  readonly status: number;
  /** The caller's label, one of a closed set. */
  readonly caller: string;
  readonly milliseconds: number;
}

interface ApiLimits extends ConnectionLimits {
  readonly requestTimeoutMs: number;
  /** As in `ServerOptions`. */
  readonly keepAliveMs?: number;
}

export interface ApiOptions extends IdRoutesOptions {
  readonly limits: ApiLimits;
  readonly tls?: TlsSettings | undefined;
  /** As in `ServerOptions`. */
  readonly isEnding?: () => boolean;
  readonly identify: Identify;
  /** Called for each request that needs no login. Throws Problem 429 where an address has too many. */
  readonly admitVisitor: (request: IncomingMessage) => void;
  readonly observe: (answered: HandledRequest) => void;
  /** Called for each connection that is closed or rejected because of a limit. */
  readonly onShed: () => void;
  /** Called for each internal error, with the ID of the request. */
  readonly onError: (error: unknown, requestId: string) => void;
}

export const MAX_BODY_BYTES = 1_024;
const OPENAPI = '/api/v1/openapi.json';
const DOCS = '/docs';
const OTHER_ROUTE = 'other';

/** The methods of each path, to tell 405 from 404. */
const ALLOWED: readonly { readonly path: RegExp; readonly allow: string }[] = [
  { path: /^\/api\/v1\/ids$/, allow: 'GET, HEAD, POST' },
  { path: /^\/api\/v1\/id$/, allow: 'POST' },
  { path: /^\/docs$/, allow: 'GET, HEAD' },
  { path: /^\/api\/v1\/openapi\.json$/, allow: 'GET, HEAD' },
  { path: /^\/api\/v1\/ids\/[^/]+$/, allow: 'GET, HEAD' },
  { path: /^\/api\/v1\/sequences\/.+$/, allow: 'GET, HEAD, POST' },
];

export interface Api {
  readonly app: FastifyInstance;
  /** Number of responses in progress. */
  inFlight(): number;
}

/** The HTTP API, ready to listen; each opening of the port needs a new one. */
export function createApi(options: ApiOptions): Api {
  const { limits, share, tls, identify, admitVisitor, observe, onShed, isEnding } = options;
  const { requestTimeoutMs, keepAliveMs } = limits;
  const connections = new Connections(limits, onShed);
  const refused = (status: number) => observe({ route: OTHER_ROUTE, status, caller: ANONYMOUS.label, milliseconds: 0 });
  const app = fastify({
    logger: false,
    bodyLimit: MAX_BODY_BYTES,
    exposeHeadRoutes: false,
    return503OnClosing: false, // the gate's reason is the answer
    genReqId: ({ headers }) => requestIdOf(headers),
    routerOptions: { maxParamLength: MAX_URL_LENGTH },
    serverFactory: (handler) =>
      boundedServer(handler, { connections, requestTimeoutMs, keepAliveMs, isEnding, refused, share, tls }),
    clientErrorHandler: () => undefined, // the server answers those itself
    frameworkErrors: (error, request, reply) => {
      correlate(request, reply);
      sendProblem(options, error, reply);
      refused(reply.statusCode); // hooks don't run for these
    },
  });
  app.server.on('connection', () => share.accepted());
  app.decorateRequest('caller', undefined);
  // Hooks with a callback, since one that returns a promise costs a turn of the microtasks for each request.
  app.addHook('onRequest', (request, reply, done) => {
    const { raw } = request;
    correlate(request, reply);
    checkEnvelope(raw);
    if (request.routeOptions.config.needsNoLogin) admitVisitor(raw);
    else {
      const caller = identify(raw);
      request.caller = caller;
      // Where all callers are one, there is nothing to share.
      if (caller !== ANONYMOUS) connections.claim(raw.socket, caller.name);
      else checkLocalHost(raw);
    }
    done();
  });
  // Responses of a turn are sent one right after the other. A client or proxy on this machine is then woken up once for
  // them, which costs as much as to answer a request, and finds the next ones when it has read the first.
  app.addHook('onSend', (_request, _reply, body, done) => {
    if (connections.size > 1) share.runLast(() => done(null, body));
    else done(null, body);
  });
  app.addHook('onResponse', (request, reply, done) => {
    const { label: caller } = callerOf(request);
    observe({ route: routeOf(request), status: reply.statusCode, caller, milliseconds: reply.elapsedTime });
    done();
  });
  app.setErrorHandler((error, _request, reply) => sendProblem(options, error, reply));
  app.setNotFoundHandler((request) => {
    throw noRoute(request);
  });
  takeBodies(app);
  addIdRoute(app, options, callerOf);
  app.register(compress, COMPRESSION);
  app.after(() => addRoutes(app, options));
  return { app, inFlight: () => connections.inProgress };
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Whether a route is open to everyone. */
    readonly needsNoLogin?: boolean;
  }
  interface FastifyRequest {
    /** Undefined before it is identified, and where nobody is. */
    caller: Caller | undefined;
  }
}

const callerOf = ({ caller }: FastifyRequest) => caller ?? ANONYMOUS;

function addRoutes(app: FastifyInstance, options: ApiOptions): void {
  addIdRoutes(app, options, callerOf);
  addSequenceRoute(app, options.ledger, callerOf);
  const document = openApiDocument(options.layout, options.maxCount);
  const [description, page] = [JSON.stringify(document), docsPage(document)];
  const open = { exposeHeadRoute: true, config: { needsNoLogin: true } };
  app.get(OPENAPI, open, async (_request, reply) => respond(reply, false, description));
  app.get(DOCS, open, async (_request, reply) => respond(reply.headers(PAGE_HEADERS), false, page));
}

/** A request's route as the metrics name it. */
function routeOf({ is404, routeOptions: { url = OTHER_ROUTE } }: FastifyRequest): string {
  if (is404) return OTHER_ROUTE;
  return url === SEQUENCES ? '/api/v1/sequences/{name}' : url.replace(':id', '{id}');
}

/** Both headers of each response by which a request can be found again. */
function correlate({ id, headers }: FastifyRequest, reply: FastifyReply): void {
  reply.header(REQUEST_ID, id).header(TRACE_PARENT, traceParentOf(headers));
}

function noRoute({ url, method }: FastifyRequest): Problem {
  const [path = ''] = url.split('?');
  const known = ALLOWED.find((route) => route.path.test(path));
  if (known === undefined)
    return new Problem(404, `unknown path: GET ${DOCS} shows all paths, and ${OPENAPI} has them for programs`);
  return new Problem(405, `method ${method} is not allowed on ${path.slice(0, 100)}`, { allow: known.allow });
}

/** The one place where errors become responses. */
function sendProblem(options: ApiOptions, error: unknown, reply: FastifyReply): FastifyReply {
  const problem = problemOf(error, options, reply.request.id);
  return reply
    .code(problem.status)
    .headers({ ...problem.headers, 'cache-control': 'no-store', 'content-type': PROBLEM_TYPE })
    .serializer(AS_IS)
    .send(problem.body());
}

/** With a serializer Fastify adds no charset, and text is sent with the headers in one write, which bytes are not. */
const AS_IS = (text: unknown) => text as string;

function problemOf(error: unknown, { onError }: ApiOptions, requestId: string): Problem {
  if (error instanceof Problem) return error;
  const { statusCode: status = 500, code } = error as { statusCode?: number; code?: string };
  if (code === 'FST_ERR_CTP_BODY_TOO_LARGE')
    return new Problem(413, `the body must not exceed ${MAX_BODY_BYTES} bytes`);
  if (code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE') return new Problem(415, 'the Content-Type is invalid');
  if (code === 'FST_ERR_BAD_URL') return malformed('the path is not valid percent-encoding');
  if (status >= 400 && status < 500) return new Problem(status, 'the request is malformed');
  onError(error, requestId);
  return new Problem(500, 'internal error; see the worker log');
}
