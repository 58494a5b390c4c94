import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import type { IncomingMessage } from 'node:http';
import { Agent, get } from 'node:https';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Duplex } from 'node:stream';
import { text } from 'node:stream/consumers';
import { connect as connectTls } from 'node:tls';
import { expect, onTestFinished, test } from 'vitest';
import { MAX_PAUSE_MS } from '../../src/core/clock-guard.ts';
import { CertificateAuthority } from '../support/certificates.ts';
import { mainThreadTimes } from '../support/cpu-time.ts';
import { Flood } from '../support/flood.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';
import { report } from '../support/whole-history.ts';
import type { WorkerProcess } from '../support/worker-process.ts';

// Stays alone: its floods take all the machine has, and a worker that others keep from a processor is paused, which is
// how these tests know that a flood has held it up. How fast probes are answered is a figure of the report. What is
// asserted is the order: a probe is answered while the flood still holds its connections; a probe that hangs ends the
// test.

const HOST = '127.0.0.1';
const MAX_RSS_MB = 600;
const PROBE_PAUSE_MS = 50;
const METRICS = 'GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n';

async function startWorker(
  env: Readonly<Record<string, string>> = {},
): Promise<{ worker: WorkerProcess; opsPort: number; apiPort: number; pid: number }> {
  const realm = await Realm.create(suiteServers());
  onTestFinished(() => realm[Symbol.asyncDispose]());
  const worker = realm.worker(env);
  const { pid } = await worker.ready();
  const { port } = await worker.line(({ msg }) => msg === 'health and metrics are served');
  return { worker, opsPort: Number(port), apiPort: Number(new URL(await worker.api()).port), pid: Number(pid) };
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
function probe(port: number, path: string, flood?: Flood): () => Promise<Probed> {
  return probeBy(overHttp(port, path), flood);
}

function probeBy(send: Send, flood?: Flood, least = 25): () => Promise<Probed> {
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

test('3,000 pipelined requests for metrics on one connection of the ops port do not delay the worker', async ({
  annotate,
}) => {
  const { worker, opsPort, pid } = await startWorker();
  const end = probe(opsPort, '/readyz');
  const flood = new Flood(opsPort, 1, METRICS.repeat(3_000), true);
  await flood.settled();
  const probed = await end();
  await report(annotate, `3,000 pipelined /metrics: ${described(probed)}; ${peakRssMb(pid)} MB`);
  expect(harm(worker, pid, probed)).toEqual([]);
  await expect.poll(() => flood.open).toBe(0);
});

test('6 MB of requests for metrics over 60 connections to the ops port that read nothing take little memory', async ({
  annotate,
}) => {
  const { worker, opsPort, pid } = await startWorker();
  const end = probe(opsPort, '/readyz');
  const flood = new Flood(opsPort, 60, METRICS.repeat(Math.ceil(100_000 / METRICS.length)), false);
  await flood.settled();
  const probed = await end();
  await report(annotate, `6 MB of /metrics over 60 connections: ${described(probed)}; ${peakRssMb(pid)} MB`);
  expect(peakRssMb(pid)).toBeLessThan(MAX_RSS_MB);
  expect(harm(worker, pid, probed)).toEqual([]);
});

const HALF_A_BODY = 'POST /healthz HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{';

test.for([
  ['idle', ''],
  ['slow', 'GET /healthz HTTP/1.1\r\nA: '],
  ['half-sent', HALF_A_BODY],
] as const)('700 %s connections to the ops port leave room for probes', async ([kind, input], { annotate }) => {
  const { worker, opsPort, pid } = await startWorker();
  const flood = new Flood(opsPort, 700, input, true);
  await flood.settled();
  const [alive, ready] = await Promise.all([probe(opsPort, '/healthz', flood)(), probe(opsPort, '/readyz', flood)()]);
  await report(annotate, `700 ${kind} connections to the ops port: ${described(alive)}; ${peakRssMb(pid)} MB`);
  expect(Math.min(alive.beside, ready.beside)).toBeGreaterThan(0);
  expect(harm(worker, pid, alive, ready)).toEqual([]);
});

test('700 slow senders do not lock others out of the API', async ({ annotate }) => {
  const { worker, apiPort, opsPort, pid } = await startWorker();
  const flood = new Flood(apiPort, 700, 'GET /api/v1/ids HTTP/1.1\r\nA: ', true);
  await flood.settled();
  const [asked, ready] = await Promise.all([
    probe(apiPort, '/api/v1/ids', flood)(),
    probe(opsPort, '/readyz', flood)(),
  ]);
  await report(annotate, `700 slow senders to the API: ${described(asked)}; ${peakRssMb(pid)} MB`);
  expect(Math.min(asked.beside, ready.beside)).toBeGreaterThan(0);
  expect(harm(worker, pid, asked, ready)).toEqual([]);
});

const TLS = { connections: 700, slow: 'GET /api/v1/ids HTTP/1.1\r\nHost: x\r\nA: ' };

/** A worker whose API requires client certificates, and a client with one. */
async function startMutual() {
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-listeners-'));
  onTestFinished(() => rmSync(dir, { recursive: true }));
  const authority = new CertificateAuthority(dir);
  const [server, caller] = [authority.issue('server'), authority.issue('caller')];
  const { opsPort, apiPort, ...rest } = await startWorker({
    API_TLS_CERT_FILE: server.certFile,
    API_TLS_KEY_FILE: server.keyFile,
    API_TLS_CLIENT_CA_FILE: authority.own.certFile,
  });
  const own = {
    ca: authority.own.certPem,
    cert: readFileSync(caller.certFile),
    key: readFileSync(caller.keyFile),
    host: HOST,
    port: apiPort,
  };
  const send: Send = async () => {
    const asked = get({ ...own, path: '/api/v1/ids', agent: new Agent({ keepAlive: false }) });
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    return { status: answer.statusCode ?? 0, body: await text(answer) };
  };
  return { ...rest, opsPort, apiPort, own, send };
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

test.for([
  ['that begin no handshake', async () => Buffer.alloc(0), true, true],
  ['that leave a handshake half-open', clientHello, true, true],
  ['that leave a handshake half-open and read nothing', clientHello, false, true],
  [
    'that send something else than a handshake',
    async () => Buffer.from('GET / HTTP/1.1\r\nHost: x\r\n\r\n'),
    true,
    false,
  ],
] as const)(
  '700 connections to the API over TLS %s do not lock out callers and probes',
  async ([kind, input, reads, stays], { annotate }) => {
    const { worker, opsPort, apiPort, send, pid } = await startMutual();
    const flood = new Flood(apiPort, TLS.connections, await input(), reads);
    await flood.settled();
    const [asked, ready] = await Promise.all([probeBy(send, flood)(), probe(opsPort, '/readyz', flood)()]);
    await report(annotate, `700 connections over TLS ${kind}: ${described(asked)}; ${peakRssMb(pid)} MB`);
    if (stays) expect(Math.min(asked.beside, ready.beside)).toBeGreaterThan(0);
    expect(peakRssMb(pid)).toBeLessThan(MAX_RSS_MB);
    expect(harm(worker, pid, asked, ready)).toEqual([]);
  },
);

/**
 * Starts and drops handshakes continuously, `atOnce` at a time, until the returned function is called or after `most`.
 */
function beginHandshakes(port: number, hello: Buffer, atOnce: number, most: number): () => Promise<number> {
  let begun = 0;
  let ended = false;
  const again = async () => {
    while (!ended && begun < most) {
      begun += 1;
      const socket = connect({ host: HOST, port }).on('error', () => undefined);
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
  const { worker, opsPort, apiPort, send, pid } = await startMutual();
  const end = beginHandshakes(apiPort, await clientHello(), 32, 20_000);
  const [asked, ready] = await Promise.all([probeBy(send)(), probe(opsPort, '/readyz')()]);
  const begun = await end();
  await report(annotate, `${begun} handshakes: ${described(asked)}, ${described(ready)}; ${peakRssMb(pid)} MB`);
  expect(begun).toBeGreaterThan(TLS.connections);
  expect(peakRssMb(pid)).toBeLessThan(MAX_RSS_MB);
  expect(harm(worker, pid, asked, ready)).toEqual([]);
});

test('700 slow callers with a certificate do not lock out others and probes, and are counted', async ({ annotate }) => {
  const { worker, opsPort, apiPort, own, send, pid } = await startMutual();
  const end = probe(opsPort, '/readyz');
  const flood = new Flood(apiPort, TLS.connections, TLS.slow, true, () => connectTls(own));
  await flood.settled();
  const asked = await probeBy(send, flood)();
  const ready = await end();
  await report(annotate, `700 slow callers over TLS: ${described(asked)}, ${described(ready)}; ${peakRssMb(pid)} MB`);
  expect(asked.beside).toBeGreaterThan(0);
  expect(peakRssMb(pid)).toBeLessThan(MAX_RSS_MB);
  expect(harm(worker, pid, asked, ready)).toEqual([]);
  const shed = await worker.metric('idalloc_connections_shed_total{listener="api"}');
  expect(shed).toBeGreaterThan(0); // how many depends on how soon the machine accepts them
});
