import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { type ConnectionLimits, Connections } from './connections.ts';
import { PROBLEM_TYPE, Problem } from './problem.ts';
import { createTlsServer, type TlsSettings } from './tls.ts';

export interface ServerLimits extends ConnectionLimits {
  /** From a connection, or from the end of the answer before, until the next request is there as a whole. */
  readonly requestTimeoutMs: number;
}

/** Told of what never becomes a request. */
export interface ServerObserver {
  /** Answered here, with this status. */
  refused(status: number): void;
  /** A connection was cut or not taken for the limit. */
  shed(): void;
}

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** Request line and headers together; node answers more with 431. */
const MAX_HEADER_BYTES = 8_192;
/** Longer than a load balancer's own, which is 60 s as a rule: it, not we, ends an idle connection. */
const KEEP_ALIVE_MS = 65_000;
/** A connection on which nothing moves while an answer is under way. */
const STALLED_MS = 30_000;
/** How exactly the time for a request is watched. */
const CHECK_MS = 500;
/** Requests of one connection under way. Clients wait for their answers as a rule, and thousands fit into one read. */
const MAX_PIPELINED = 2;
/** Input is parsed in so small steps that few requests fit into one. */
const SLICE_BYTES = 512;
/** The other side's time to read why it is refused. */
const LINGER_MS = 500;

/**
 * A server of HTTP/1.1 whose connections are bounded in number, time and size. What never becomes a request is answered
 * here.
 */
export function boundedServer(
  handler: Handler,
  limits: ServerLimits,
  observer: ServerObserver,
  tls?: TlsSettings,
): Server {
  const { requestTimeoutMs } = limits;
  const connections = new Connections(limits, () => observer.shed());
  const options = {
    maxHeaderSize: MAX_HEADER_BYTES,
    requireHostHeader: false, // node's own refusal has no body
    requestTimeout: requestTimeoutMs, // the headers' too
    connectionsCheckingInterval: Math.min(CHECK_MS, requestTimeoutMs),
    keepAliveTimeout: KEEP_ALIVE_MS,
  };
  const server: Server = tls === undefined ? createServer(options) : createTlsServer(options, tls, requestTimeoutMs);
  server.closeAllConnections = () => connections.cutAll(); // those in a handshake among them
  server.setTimeout(STALLED_MS);
  server.on('connection', (socket) => connections.admit(socket));
  server.on('secureConnection', (socket: Socket) => connections.secured(socket));
  server.on(tls === undefined ? 'connection' : 'secureConnection', parseInSlices);
  server.on('request', (request, response) => {
    const { socket } = request;
    if (connections.answers(socket).size >= MAX_PIPELINED) return socket.destroy();
    connections.asked(socket, response);
    if (hasBody(request)) request.once('end', () => connections.complete(socket, response));
    else connections.complete(socket, response);
    return handler(request, response);
  });
  server.on('checkExpectation', (_request, response: ServerResponse) => {
    const problem = new Problem(417, 'no expectation but 100-continue can be met');
    observer.refused(problem.status);
    const body = Buffer.from(problem.body());
    const headers = { 'content-type': PROBLEM_TYPE, 'content-length': body.length, connection: 'close' };
    response.writeHead(problem.status, headers).end(body);
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
    const [first, ...others] = connections.answers(socket);
    const begun = others.length > 0 || first?.headersSent === true;
    const isHttp = connections.has(socket); // a handshake that failed is none
    if (begun || !isHttp || !socket.writable || error.code === 'ECONNRESET') return socket.destroy();
    const problem = problemOf(error);
    observer.refused(problem.status);
    return linger(socket, rawAnswer(problem));
  });
  return server;
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/**
 * Node parses all of a read at once, and goes on for a connection that was destroyed at the first of its requests: 64 kB
 * of them hold the event loop up for 20 ms, and that for each connection. So the parser's listener is fed here, in slices,
 * until the connection is destroyed.
 */
function parseInSlices(socket: Socket): void {
  const [parse, ...others] = socket.listeners('data');
  if (parse === undefined || others.length > 0) return;
  socket.removeAllListeners('data');
  socket.on('data', (chunk: Buffer) => {
    for (let at = 0; at < chunk.length && !socket.destroyed && !socket.writableEnded; at += SLICE_BYTES) {
      // Node has enough for now: it waits until its answers are taken.
      if (socket.isPaused()) return void socket.unshift(chunk.subarray(at));
      parse(chunk.subarray(at, at + SLICE_BYTES));
    }
  });
}

/** A connection that is closed with input unread is reset, and the other side may never see the answer. */
function linger(socket: Duplex, answer: string): void {
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once('close', () => clearTimeout(timer));
  socket.end(answer);
  socket.resume();
}

function problemOf({ code = '' }: NodeJS.ErrnoException): Problem {
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return new Problem(408, 'the request did not come in time');
  if (code === 'HPE_HEADER_OVERFLOW') {
    return new Problem(431, `request line and headers together may have ${MAX_HEADER_BYTES} bytes`);
  }
  return new Problem(400, 'this is no HTTP/1.1 request');
}

/** For a connection on which no request came about, so that there is no response to write it with. */
function rawAnswer(problem: Problem): string {
  const body = problem.body();
  const lines = [
    `HTTP/1.1 ${problem.status} ${JSON.parse(body).title}`,
    `Content-Type: ${PROBLEM_TYPE}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Cache-Control: no-store',
    'Connection: close',
  ];
  return `${lines.join('\r\n')}\r\n\r\n${body}`;
}
