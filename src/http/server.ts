import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import type { Connections } from './connections.ts';
import { correlationOf } from './correlation.ts';
import type { LoopShare } from './loop-share.ts';
import { PROBLEM_TYPE, Problem } from './problem.ts';
import { createTlsServer, type TlsSettings } from './tls-server.ts';

export interface ServerOptions {
  readonly connections: Connections;
  /**
   * The time limit from a connection's start, or the end of its last response, until the next request has arrived
   * completely.
   */
  readonly requestTimeoutMs: number;
  /** Called with the status of each request that never reaches the handler, because the server answers it. */
  readonly refused: (status: number) => void;
  /** How long a connection without a request in progress is kept; by default 65 s. */
  readonly keepAliveMs?: number | undefined;
  /** Whether each response ends its connection, since the server is about to end. */
  readonly isEnding?: (() => boolean) | undefined;
  /** Shares the event loop among requests of many connections. */
  readonly share: LoopShare;
  readonly tls?: TlsSettings | undefined;
}

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

/** Request line and headers together; more is a 431. */
export const MAX_HEADER_BYTES = 8_192;
/** Longer than the usual 60 s of load balancers, so that they, not we, close idle connections. */
const KEEP_ALIVE_MS = 65_000;
/** Inactivity after which a connection with a response in progress is closed. */
const STALLED_MS = 30_000;
/** How often request timeouts are checked. */
const CHECK_MS = 500;
/**
 * Pipelined requests per connection. Clients normally wait for responses, and thousands of requests fit into one read.
 */
const MAX_PIPELINED = 2;
/** Input is parsed in slices so small that few requests fit into one. */
const SLICE_BYTES = 512;
/** Time for the client to read why it is rejected. */
const LINGER_MS = 500;

/**
 * An HTTP/1.1 server that limits its connections in number, time and size. It answers malformed requests itself.
 */
export function boundedServer(handler: Handler, options: ServerOptions): Server {
  const { connections, requestTimeoutMs, keepAliveMs = KEEP_ALIVE_MS, isEnding, refused, share, tls } = options;
  const bounds = {
    maxHeaderSize: MAX_HEADER_BYTES,
    requireHostHeader: false, // Node's own rejection has no body
    requestTimeout: requestTimeoutMs, // includes the headers
    connectionsCheckingInterval: Math.min(CHECK_MS, requestTimeoutMs),
    keepAliveTimeout: keepAliveMs,
  };
  const secure = tls && createTlsServer({ ...bounds, handshakeTimeout: requestTimeoutMs }, tls, connections);
  const server: Server = secure?.server ?? createServer(bounds);
  server.closeAllConnections = () => connections.cutAll(); // including those in a handshake
  server.setTimeout(STALLED_MS);
  server.on('connection', (socket) => socket.destroyed || connections.admit(socket));
  server.on('secureConnection', (socket: Socket) => connections.secured(socket));
  server.on(tls === undefined ? 'connection' : 'secureConnection', parseInSlices);
  server.on('request', (request, response) => {
    const { socket } = request;
    if (secure?.isTrusted(socket) === false || connections.isEnding(socket)) return socket.destroy();
    if (connections.responsesInProgress(socket).size >= MAX_PIPELINED) return socket.destroy();
    if (isEnding?.()) response.shouldKeepAlive = false;
    connections.requestStarted(socket, response);
    if (hasBody(request)) request.once('end', () => connections.requestComplete(socket, response));
    else connections.requestComplete(socket, response);
    // Its owner is the caller of the request before; a connection that was closed meanwhile gets no answer.
    return share.runSoon(() => socket.destroyed || handler(request, response), connections.ownerOf(socket));
  });
  server.on('checkExpectation', ({ headers: sent }: IncomingMessage, response: ServerResponse) => {
    const problem = new Problem(417, 'the only supported expectation is 100-continue');
    refused(problem.status);
    const body = Buffer.from(problem.body());
    const headers = { ...correlationOf(sent), 'content-type': PROBLEM_TYPE, 'content-length': body.length };
    response.writeHead(problem.status, { ...headers, connection: 'close' }).end(body);
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket: Duplex) => {
    const [first, ...others] = connections.responsesInProgress(socket);
    const started = others.length > 0 || first?.headersSent === true;
    const isHttp = connections.has(socket); // false after a failed handshake
    if (started || !isHttp || !socket.writable || error.code === 'ECONNRESET') return socket.destroy();
    const problem = problemOf(error);
    refused(problem.status);
    return linger(socket, rawResponse(problem));
  });
  return server;
}

function hasBody({ headers }: IncomingMessage): boolean {
  return headers['transfer-encoding'] !== undefined || Number(headers['content-length'] ?? 0) > 0;
}

/**
 * Node parses each read as a whole, even after one of its requests destroyed the connection: 64 kB of requests block
 * the event loop for 20 ms per connection. So the parser is fed in slices here, until the connection is destroyed.
 */
function parseInSlices(socket: Socket): void {
  const [parse, ...others] = socket.listeners('data');
  if (parse === undefined || others.length > 0) return;
  socket.removeAllListeners('data');
  socket.on('data', (chunk: Buffer) => {
    if (chunk.length <= SLICE_BYTES && !socket.isPaused()) return void parse(chunk);
    for (let at = 0; at < chunk.length && !socket.destroyed && !socket.writableEnded; at += SLICE_BYTES) {
      // Node applies backpressure until its responses are read.
      if (socket.isPaused()) return void socket.unshift(chunk.subarray(at));
      parse(chunk.subarray(at, at + SLICE_BYTES));
    }
  });
}

/** Closing a connection with unread input resets it, and the client may never see the response. */
function linger(socket: Duplex, answer: string): void {
  const timer = setTimeout(() => socket.destroy(), LINGER_MS);
  socket.once('close', () => clearTimeout(timer));
  socket.end(answer);
  socket.resume();
}

function problemOf({ code = '' }: NodeJS.ErrnoException): Problem {
  if (code === 'ERR_HTTP_REQUEST_TIMEOUT') return new Problem(408, 'the request did not arrive in time');
  if (code === 'HPE_HEADER_OVERFLOW') {
    return new Problem(431, `request line and headers together must not exceed ${MAX_HEADER_BYTES} bytes`);
  }
  return new Problem(400, 'not a valid HTTP/1.1 request');
}

/** A response for a connection without a parsed request, where Node has no response object. */
function rawResponse(problem: Problem): string {
  const body = problem.body();
  const lines = [
    `HTTP/1.1 ${problem.status} ${JSON.parse(body).title}`,
    `Content-Type: ${PROBLEM_TYPE}`,
    `Content-Length: ${Buffer.byteLength(body)}`,
    'Cache-Control: no-store',
    'Connection: close',
    ...Object.entries(correlationOf({})).map(([name, value]) => `${name}: ${value}`),
  ];
  return `${lines.join('\r\n')}\r\n\r\n${body}`;
}
