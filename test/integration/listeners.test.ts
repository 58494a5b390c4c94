import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { Agent, get } from 'node:https';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { MAX_PAUSE_MS } from '../../src/core/clock-guard.ts';
import { CertificateAuthority } from '../support/certificates.ts';
import { mainThreadTimes } from '../support/cpu-time.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { report } from '../support/whole-history.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

// Stays alone: its floods take all the machine has, and a worker that others keep from a processor is paused, which is
// how these tests know that a flood has held it up. How fast probes are answered is a figure of the report. What is
// asserted is the order: a probe is answered while the flood still holds its connections; a probe that hangs ends the
// test.

const HOST = '127.0.0.1';
/** TLS connections are limited by remote address, so that whoever floods has another one than who probes. */
const FLOODER = '127.0.0.2';
const MAX_RSS_MB = 600;
const PROBE_PAUSE_MS = 50;

/** Hostile connections. Connections that the server cuts are not reopened. */
class Flood {
  readonly #sockets: Socket[];

  constructor(connections: number, input: string | Buffer, reads: boolean, open: () => Socket) {
    this.#sockets = Array.from({ length: connections }, () => {
      const socket = open();
      socket.on('error', () => undefined); // a cut connection may come as a reset
      if (reads) socket.resume();
      socket.write(input);
      return socket;
    });
    onTestFinished(() => {
      for (const socket of this.#sockets) socket.destroy();
    });
  }

  get open(): number {
    return this.#sockets.filter((socket) => !socket.closed).length;
  }

  /** Resolves when the server has accepted or cut every connection. */
  async settled(): Promise<void> {
    const waiting = this.#sockets.filter((socket) => !socket.closed && socket.readyState !== 'open');
    await Promise.all(
      waiting.map(
        (socket) => new Promise<void>((resolve) => socket.once('connect', resolve).once('close', () => resolve())),
      ),
    );
  }
}

async function startWorker(env: Readonly<Record<string, string>> = {}) {
  const realm = await Realm.create(suiteServers());
  onTestFinished(() => realm[Symbol.asyncDispose]());
  const worker = realm.worker(env);
  const { pid } = await worker.ready();
  const { port } = await worker.line(({ msg }) => msg === 'health and metrics are served');
  const [opsPort, apiPort] = [Number(port), Number(new URL(await worker.api()).port)];
  const ops = (path: string) => overHttp(opsPort, path);
  return { worker, opsPort, apiPort, pid: Number(pid), ops, send: overHttp(apiPort, '/api/v1/ids') };
}

interface Probed {
  readonly probes: number;
  /** Connections that the flood still held when the first probe was answered. */
  readonly beside: number;
  readonly slowestMs: number;
  readonly failed: readonly string[];
}

type Send = () => Promise<{ readonly status: number; readonly body: string }>;

const overHttp =
  (port: number, path: string): Send =>
  async () => {
    const response = await fetch(`http://${HOST}:${port}${path}`, { headers: { connection: 'close' } });
    return { status: response.status, body: await response.text() };
  };

/** Sends probes on new connections, as orchestrators do, until the returned function is called and enough were sent. */
function probe(send: Send, flood?: Flood, least = 25): () => Promise<Probed> {
  const failed: string[] = [];
  let probes = 0;
  let slowestMs = 0;
  let beside = 0;
  let ended = false;
  const once = async () => {
    const beganMs = performance.now();
    const answer = await send()
      .then(({ status, body }) => `${status} ${status === 200 ? '' : body}`.trim())
      .catch((error: Error) => error.name);
    slowestMs = Math.max(slowestMs, performance.now() - beganMs);
    if (probes === 0) beside = flood?.open ?? 0;
    probes += 1;
    if (answer !== '200') failed.push(answer);
  };
  const run = (async () => {
    while (!ended || probes < least) {
      await once();
      await new Promise((resolve) => setTimeout(resolve, PROBE_PAUSE_MS));
    }
  })();
  return async () => {
    ended = true;
    await run;
    return { probes, beside, slowestMs: Math.round(slowestMs), failed };
  };
}

/** The peak memory of the process. */
function peakRssMb(pid: number): number {
  const kilobytes = /VmHWM:\s*(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];
  return Math.round(Number(kilobytes) / 1_024);
}

function described({ probes, slowestMs, failed }: Probed): string {
  return `${probes - failed.length} of ${probes} probes answered, the slowest after ${slowestMs} ms`;
}

/**
 * What the flood did to the worker: probes without success, and closings of its gate. A pause of the process is not the
 * flood's if the main thread waited that long for a processor, which it does on a busy machine.
 */
function harm(worker: WorkerProcess, pid: number, ...probed: readonly Probed[]): readonly string[] {
  const closings = worker.lines.filter(({ msg }) => msg === 'gate closed').map(({ reason }) => String(reason));
  const all = [...probed.flatMap(({ failed }) => failed), ...closings];
  return mainThreadTimes(pid).waitedMs > MAX_PAUSE_MS ? all.filter((one) => !one.includes('PROCESS_PAUSED')) : all;
}

/** A worker whose API requires client certificates, and a client with one. */
async function startMutual() {
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-listeners-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const authority = new CertificateAuthority(dir);
  const [server, caller] = [authority.issue('server'), authority.issue('caller')];
  const started = await startWorker({
    API_TLS_CERT_FILE: server.certFile,
    API_TLS_KEY_FILE: server.keyFile,
    API_TLS_CLIENT_CA_FILE: authority.own.certFile,
  });
  const own = {
    ca: authority.own.certPem,
    cert: readFileSync(caller.certFile),
    key: readFileSync(caller.keyFile),
    host: HOST,
    port: started.apiPort,
  };
  const send: Send = async () => {
    const asked = get({ ...own, path: '/api/v1/ids', agent: new Agent({ keepAlive: false }) });
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    return { status: answer.statusCode ?? 0, body: await text(answer) };
  };
  return { ...started, own, send };
}

/** The first bytes of a client in a TLS handshake. */
async function clientHello(): Promise<Buffer> {
  const { promise, resolve } = Promise.withResolvers<Buffer>();
  const wire = new Duplex({
    read: () => undefined,
    write(chunk: Buffer, _encoding, done) {
      resolve(chunk);
      done();
    },
  });
  connectTls({ socket: wire, host: HOST }).on('error', () => undefined); // it gets no answer
  try {
    return await promise;
  } finally {
    wire.destroy();
  }
}

const METRICS = 'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n';
const SLOW = 'GET /api/v1/ids HTTP/1.1\r\nHost: x\r\nA: ';
const HALF_A_BODY = 'POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{';

interface Case {
  readonly connections?: number;
  readonly input?: () => string | Promise<Buffer>;
  /** The flood reads no answers. */
  readonly deaf?: true;
  /** The server ends its connections at once, and probes begin with it. */
  readonly ends?: true;
}

/** Floods, by what is flooded: the ops port, the API, or the API over TLS. */
const FLOODS: readonly (readonly ['ops' | 'api' | 'tls', string, Case])[] = [
  ['ops', 'pipelines 3,000 requests for metrics', { connections: 1, input: () => METRICS.repeat(3_000), ends: true }],
  ['ops', 'asks for 6 MB of metrics', { connections: 60, input: () => METRICS.repeat(2_860), deaf: true, ends: true }],
  ['ops', 'is idle', {}],
  ['ops', 'is slow', { input: () => 'GET /healthz HTTP/1.1\r\nA: ' }],
  ['ops', 'sends half a body', { input: () => HALF_A_BODY }],
  ['api', 'is slow', { input: () => SLOW }],
  ['tls', 'begins no handshake', {}],
  ['tls', 'leaves a handshake half-open', { input: clientHello }],
  ['tls', 'leaves a handshake half-open and reads nothing', { input: clientHello, deaf: true }],
  ['tls', 'sends something else than a handshake', { input: () => 'GET / HTTP/1.1\r\nHost: x\r\n\r\n', ends: true }],
];

test.for(FLOODS)('at %s a flood that %s locks out neither callers nor probes', async (flooded, { annotate }) => {
  const [where, kind, { connections = 700, input = () => '', deaf, ends }] = flooded;
  const { worker, opsPort, apiPort, ops, send, pid } = await (where === 'tls' ? startMutual() : startWorker());
  const port = where === 'ops' ? opsPort : apiPort;
  const bytes = await input();
  const early = ends ? probe(ops('/readyz')) : undefined;
  const flood = new Flood(connections, bytes, deaf === undefined, () =>
    connect({ host: HOST, port, localAddress: FLOODER }),
  );
  await flood.settled();
  const probes = [probe(where === 'ops' ? ops('/healthz') : send, flood), early ?? probe(ops('/readyz'), flood)];
  const [asked, ready] = (await Promise.all(probes.map((end) => end()))) as [Probed, Probed];
  await report(
    annotate,
    `${where}, flood that ${kind}: ${described(asked)}, ${described(ready)}; ${peakRssMb(pid)} MB`,
  );
  if (ends === undefined) expect(Math.min(asked.beside, ready.beside)).toBeGreaterThan(0);
  expect(peakRssMb(pid)).toBeLessThan(MAX_RSS_MB);
  expect(harm(worker, pid, asked, ready)).toEqual([]);
  if (connections === 1) await expect.poll(() => flood.open).toBe(0);
});

/**
 * Starts and drops handshakes continuously, `atOnce` at a time, until the returned function is called or after `most`.
 */
function beginHandshakes(port: number, hello: Buffer, atOnce: number, most: number): () => Promise<number> {
  let begun = 0;
  let ended = false;
  const again = async () => {
    while (!ended && begun < most) {
      begun += 1;
      const socket = connect({ host: HOST, port, localAddress: FLOODER }).on('error', () => undefined);
      socket.once('data', () => socket.destroy()).write(hello);
      if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve));
    }
  };
  const all = Promise.all(Array.from({ length: atOnce }, again));
  return async () => {
    ended = true;
    await all;
    return begun;
  };
}

test('32 clients that start one handshake after the other delay neither callers nor probes', async ({ annotate }) => {
  const { worker, apiPort, ops, send, pid } = await startMutual();
  const end = beginHandshakes(apiPort, await clientHello(), 32, 20_000);
  const [asked, ready] = await Promise.all([probe(send)(), probe(ops('/readyz'))()]);
  const begun = await end();
  await report(annotate, `${begun} handshakes: ${described(asked)}, ${described(ready)}; ${peakRssMb(pid)} MB`);
  expect(begun).toBeGreaterThan(700);
  expect(peakRssMb(pid)).toBeLessThan(MAX_RSS_MB);
  expect(harm(worker, pid, asked, ready)).toEqual([]);
});

test('700 slow callers with a certificate do not lock out others and probes, and are counted', async ({ annotate }) => {
  const { worker, ops, own, send, pid } = await startMutual();
  const end = probe(ops('/readyz'));
  const flooder = { ...own, localAddress: FLOODER };
  const flood = new Flood(700, SLOW, true, () => connectTls(flooder));
  await flood.settled();
  const asked = await probe(send, flood)();
  const ready = await end();
  await report(annotate, `700 slow callers over TLS: ${described(asked)}, ${described(ready)}; ${peakRssMb(pid)} MB`);
  expect(asked.beside).toBeGreaterThan(0);
  expect(peakRssMb(pid)).toBeLessThan(MAX_RSS_MB);
  expect(harm(worker, pid, asked, ready)).toEqual([]);
  const shed = await worker.metric('idalloc_connections_shed_total{listener="api"}');
  expect(shed).toBeGreaterThan(0); // how many depends on how soon the machine accepts them
});
