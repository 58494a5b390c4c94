import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { withEtcd } from '../../adapters/etcd/etcd.ts';
import { decodeLeaseRecord } from '../../codec/namespace-values.ts';
import { loadEtcdConfig } from '../../config/config.ts';
import type { Environment } from '../../config/parse.ts';
import { VARIABLES } from '../../config/variables.ts';
import { formatHostPort, type HostPort, isHostPort, parseHostPort } from '../../core/host-port.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { namespaceKeys, readSnapshot } from '../../identity/keys.ts';
import type { CliContext } from '../context.ts';

/**
 * Whom to ask, and how. Nobody keeps a list of the workers: etcd has the addresses of those that hold a worker ID, and
 * a name of DNS those of a service. Each is asked by itself, so that one that hangs costs its own row and no other.
 */

/** The workers that a command line chooses. */
export interface WorkerChoice {
  readonly all?: true;
  readonly port?: number;
}

/** A worker to ask, or a name that could not be resolved. */
export interface WorkerPlace {
  /** host:port for people. */
  readonly address: string;
  /** Asked if `address` refuses the connection. */
  readonly otherwise?: string;
  readonly fault?: string;
}

/** What one worker answered to one path: the body, and the status of HTTP; or why there is none. */
export type WorkerAnswer = { readonly code: number; readonly body: string } | { readonly fault: string };

const ANY_ADDRESS: ReadonlySet<string> = new Set(['0.0.0.0', '::']);

/**
 * The workers that the names and `all` stand for, each once; without both, that of this machine.
 *
 * @throws IdallocError CONFIG_INVALID for a port or a name that is none, ETCD_UNAVAILABLE for `all` without etcd.
 */
export async function workersToAsk(
  context: CliContext,
  names: readonly string[],
  { all, port = opsPort(context.env) }: WorkerChoice,
): Promise<WorkerPlace[]> {
  const own = names.length === 0 && all !== true ? [ownHost(context.env)] : names;
  const named = await Promise.all(own.map((name) => resolve(name, port)));
  const holders = all === true ? await holderIps(context.env) : [];
  const places = [...named.flat(), ...holders.map((host) => placeOfHolder(context, { host, port }))];
  return [...new Map(places.map((place) => [place.address, place])).values()];
}

/**
 * The place of a holder by the address in its lease. A worker of this machine may listen where only this machine
 * reaches it, as it does by default.
 */
export function placeOfHolder({ env, hostIp }: Pick<CliContext, 'env' | 'hostIp'>, holder: HostPort): WorkerPlace {
  const address = formatHostPort(holder);
  if (holder.host !== hostIp()) return { address };
  return { address, otherwise: formatHostPort({ host: ownHost(env), port: holder.port }) };
}

function opsPort(env: Environment): number {
  const { schema, fallback = '' } = VARIABLES.OPS_PORT;
  const parsed = schema.safeParse(env.OPS_PORT || fallback);
  if (parsed.success && parsed.data !== 0) return parsed.data;
  throw new IdallocError('CONFIG_INVALID', 'OPS_PORT does not name a port: set --port');
}

function ownHost(env: Environment): string {
  const host = env.OPS_HOST || VARIABLES.OPS_HOST.fallback || '';
  return ANY_ADDRESS.has(host) ? '127.0.0.1' : host;
}

/** All addresses of a name: a headless service has one for each pod. */
async function resolve(name: string, port: number): Promise<WorkerPlace[]> {
  const given = placeOf(name, port);
  if (isIP(given.host.replace(/%.*/, '')) !== 0) return [{ address: formatHostPort(given) }];
  try {
    const found = await lookup(given.host, { all: true });
    return found.map(({ address: host }) => ({ address: formatHostPort({ host, port: given.port }) }));
  } catch (error) {
    return [{ address: formatHostPort(given), fault: describeError(error) }];
  }
}

function placeOf(name: string, port: number): HostPort {
  if (isIP(name) !== 0) return { host: name, port };
  const text = isHostPort(name) ? name : `${name}:${port}`;
  if (isHostPort(text)) return parseHostPort(text);
  throw new IdallocError('CONFIG_INVALID', `'${name}' is no name or address of a worker`);
}

async function holderIps(env: Environment): Promise<string[]> {
  const { etcd, datacenterId } = loadEtcdConfig(env);
  const snapshot = await withEtcd(etcd, (client) => readSnapshot(client, namespaceKeys(etcd.prefix, datacenterId)));
  return [...snapshot.owners.values()].map(({ value }) => decodeLeaseRecord(value).assignedWorkerIp);
}

/** So long a worker has for an answer. A probe would have given up before. */
const TIMEOUT_MS = 5_000;
/** Far more than the metrics of a worker with 1,024 partitions. */
const MAX_BODY_BYTES = 16 * 2 ** 20;
/** A namespace may have 1,024 workers, and a machine often no more than that many open files. */
const AT_ONCE = 32;

/**
 * Asks each worker for a path. Their answers are in the order of the places.
 *
 * @throws IdallocError STOPPING when the command is stopped meanwhile.
 */
export async function askAll(
  context: CliContext,
  places: readonly WorkerPlace[],
  path: string,
): Promise<WorkerAnswer[]> {
  const answers: WorkerAnswer[] = [];
  const waiting = places.entries();
  const asker = async () => {
    for (const [i, place] of waiting) answers[i] = await ask(place, path, context.stop);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, asker));
  if (context.stop.aborted) throw new IdallocError('STOPPING', 'stopped before each worker had answered');
  return answers;
}

async function ask(place: WorkerPlace, path: string, stop: AbortSignal): Promise<WorkerAnswer> {
  const { address, otherwise, fault } = place;
  if (fault !== undefined) return { fault };
  const limit = AbortSignal.timeout(TIMEOUT_MS);
  try {
    const signal = AbortSignal.any([stop, limit]);
    const response = await fetch(`http://${address}${path}`, { signal, redirect: 'error' });
    return { code: response.status, body: await textOf(response) };
  } catch (error) {
    if (limit.aborted) return { fault: `no answer within ${TIMEOUT_MS / 1_000} s` };
    // fetch itself says no more than that it failed.
    const cause = error instanceof Error && error.cause !== undefined ? error.cause : error;
    const isRefused = (cause as NodeJS.ErrnoException).code === 'ECONNREFUSED';
    if (isRefused && otherwise !== undefined) return await ask({ address: otherwise }, path, stop);
    return { fault: describeError(cause) };
  }
}

/** The server at an address may be anybody's, and may never end its answer. */
async function textOf({ body }: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body ?? []) {
    bytes += chunk.byteLength;
    if (bytes > MAX_BODY_BYTES) throw new RangeError(`its answer is longer than ${MAX_BODY_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString();
}
