import { copyFile, cp, mkdir, mkdtemp, rename, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DEFAULT_IMAGES } from '../../src/testcontainers/images.ts';
import { buildEtcd } from '../bare/etcd.ts';
import { goCommand } from '../bare/go-program.ts';
import { installKafka } from '../bare/kafka.ts';
import { ensureTools, type Log, type ToolName } from '../bare/toolchain.ts';
import { docker, ensurePrograms } from './docker-engine.ts';
import { acquireLock } from './lock.mjs';
import { cacheDir, ROOT } from './paths.ts';
import { run } from './run.ts';

/** The official images that the tests use, and that the worker's image is based on. */
export const IMAGES = {
  kafka: DEFAULT_IMAGES.kafka,
  etcd: DEFAULT_IMAGES.etcd,
  node: 'node:24-trixie-slim',
  prometheus: 'prom/prometheus:v3.5.0',
} as const;

export type ImageName = keyof typeof IMAGES;

/**
 * The container that cleans up after a killed test process. It is small, so its pull also shows whether a registry
 * answers.
 */
const REAPER = 'testcontainers/ryuk:0.14.0';

const BASE = 'idalloc-standin/base';
const NPM = 'npm@11';
const PROBE_MS = 60_000;
const PULL_MS = 600_000;
const BUILD_MS = 900_000;

async function isPresent(image: string): Promise<boolean> {
  return (await docker(['image', 'inspect', image])).code === 0;
}

/** @returns why the image could not be pulled; undefined if it was */
async function pull(image: string, timeoutMs: number, signal?: AbortSignal): Promise<string | undefined> {
  const { code, stderr } = await docker(['pull', '--quiet', image], timeoutMs, signal);
  signal?.throwIfAborted();
  if (code === 0) return undefined;
  return code === undefined
    ? `no answer in ${timeoutMs} ms`
    : (stderr.trim().split('\n').at(-1) ?? `exit code ${code}`);
}

/** Whether the reaper's image is available or can be pulled. If not, the caller has to clean up. */
export async function ensureReaper(): Promise<boolean> {
  return (await isPresent(REAPER)) || (await pull(REAPER, PROBE_MS)) === undefined;
}

interface BuildOptions {
  readonly file?: string;
  readonly labels?: Readonly<Record<string, string>>;
  /** The build's arguments. */
  readonly args?: Readonly<Record<string, string>>;
}

/**
 * Builds with the classic builder if the newer one is missing. With the host network, so that registries are reached as
 * on this machine.
 */
async function dockerBuild(image: string, context: string, options: BuildOptions = {}): Promise<void> {
  const { file = join(context, 'Dockerfile'), labels = {}, args = {} } = options;
  const buildKit = (await docker(['buildx', 'version'])).code === 0;
  await run({
    command: 'docker',
    args: [
      ...['build', '--quiet', '--force-rm', '--network', 'host', '--tag', image, '--file', file],
      ...Object.entries(labels).flatMap(([name, value]) => ['--label', `${name}=${value}`]),
      ...Object.entries(args).flatMap(([name, value]) => ['--build-arg', `${name}=${value}`]),
      context,
    ],
    env: { ...process.env, DOCKER_BUILDKIT: buildKit ? '1' : '0' },
    purpose: `the build of ${image}`,
    timeoutMs: BUILD_MS,
  });
}

/** The jars that server processes use as well, whatever Kafka the environment names for those. */
async function jars(context: string, log: Log): Promise<void> {
  const { KAFKA_HOME: _, ...env } = process.env;
  await cp(await installKafka(env, { cache: cacheDir(env), log }), join(context, 'libs'), { recursive: true });
}

/** The server that server processes use as well; the client is built from a separate module. */
async function etcdPrograms(context: string, log: Log): Promise<void> {
  const options = { cache: cacheDir(process.env), log };
  await copyFile(await buildEtcd(process.env, options), join(context, 'etcd'));
  const go = await goCommand(process.env, options);
  await run({
    command: go.command,
    args: [
      ...['build', '-trimpath', '-buildvcs=false', '-ldflags=-s -w', '-o', join(context, 'etcdctl')],
      'go.etcd.io/etcd/etcdctl/v3',
    ],
    cwd: join(ROOT, 'ops/images/etcd/client'),
    env: { ...go.env, CGO_ENABLED: '0' },
    purpose: 'the build of etcdctl by Go',
    timeoutMs: BUILD_MS,
  });
}

async function nodeAndNpm(context: string): Promise<void> {
  await copyFile(process.execPath, join(context, 'node'));
  const pack = { command: 'npm', args: ['pack', '--silent', NPM], purpose: 'the download of npm', timeoutMs: BUILD_MS };
  const archive = (await run({ ...pack, cwd: context })).trim();
  const unpack = { command: 'tar', args: ['-xzf', archive], purpose: 'unpacking npm', timeoutMs: BUILD_MS };
  await run({ ...unpack, cwd: context });
  await rename(join(context, 'package'), join(context, 'npm'));
  await rm(join(context, archive));
}

/**
 * A stand-in's needs besides the files in ops/images: programs of this machine, and what they add to the build context.
 */
const STAND_INS: Readonly<
  Record<ImageName, { tools: ToolName[]; fill: (context: string, log: Log) => Promise<unknown> }>
> = {
  kafka: { tools: ['java', 'mvn'], fill: jars },
  etcd: { tools: ['go'], fill: etcdPrograms },
  node: { tools: [], fill: nodeAndNpm },
  prometheus: { tools: [], fill: async () => undefined },
};

async function buildStandIn(name: ImageName, base: Promise<unknown>, log: Log): Promise<void> {
  const begin = performance.now();
  const scratch = await mkdtemp(join(tmpdir(), 'idalloc-image-'));
  try {
    const context = join(scratch, name);
    await mkdir(context);
    await cp(join(ROOT, 'ops/images', name), context, { recursive: true });
    await Promise.all([STAND_INS[name].fill(context, log), base]);
    await dockerBuild(IMAGES[name], context);
    log(`built a stand-in for ${IMAGES[name]} in ${Math.round((performance.now() - begin) / 1000)} s`);
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}

/** A minimal Debian for the stand-ins that need one. */
async function ensureBase(log: Log): Promise<void> {
  if (await isPresent(BASE)) return;
  const missing = await ensurePrograms({ debootstrap: 'debootstrap' }, log);
  if (missing !== undefined) throw new Error(`stand-in images need debootstrap: ${missing}`);
  log('building a Debian base with debootstrap');
  const command = join(ROOT, 'ops/images/base/build');
  await run({ command, args: [BASE], purpose: 'the build of a Debian base', timeoutMs: BUILD_MS });
}

async function buildStandIns(names: readonly ImageName[], why: string, log: Log): Promise<void> {
  await ensureTools(
    names.flatMap((name) => STAND_INS[name].tools),
    { env: process.env, log },
  );
  log(`no registry answers (${why})`);
  log(`building stand-ins under the same names: ${names.map((name) => IMAGES[name]).join(', ')}`);
  const base = names.some((name) => name !== 'etcd') ? ensureBase(log) : Promise.resolve();
  const builds = await Promise.allSettled(names.map((name) => buildStandIn(name, base, log)));
  const faults = builds.flatMap((build) => (build.status === 'rejected' ? [build.reason as Error] : []));
  if (faults.length > 0) throw new AggregateError(faults, faults.map((fault) => fault.message).join('\n'));
}

/**
 * Makes the images available under their official names. Missing images are pulled; if no registry answers, stand-ins
 * are built from package registries. Needs an engine; rejects if an image can't be pulled or built.
 */
export async function ensureImages(names: readonly ImageName[], log: Log): Promise<void> {
  const present = await Promise.all(names.map((name) => isPresent(IMAGES[name])));
  const absent = names.filter((_, index) => !present[index]);
  if (absent.length === 0) return;
  const refused = await pull(REAPER, PROBE_MS);
  if (refused !== undefined) return buildStandIns(absent, refused, log);
  const unpulled: ImageName[] = [];
  let why = '';
  for (const name of absent) {
    log(`pulling ${IMAGES[name]}`);
    const fault = await pull(IMAGES[name], PULL_MS);
    if (fault === undefined) continue;
    unpulled.push(name);
    why = fault;
  }
  if (unpulled.length > 0) await buildStandIns(unpulled, why, log);
}

/**
 * Pulls those of the images that are missing, and builds none.
 *
 * @returns why not all are available; undefined if they are
 */
export async function pullImages(
  names: readonly ImageName[],
  log: Log,
  signal: AbortSignal,
): Promise<string | undefined> {
  for (const name of names) {
    const image = IMAGES[name];
    if (await isPresent(image)) continue;
    log(`pulling ${image}`);
    const fault = await pull(image, PULL_MS, signal);
    if (fault !== undefined) return `${image} is missing and can't be pulled (${fault})`;
  }
  return undefined;
}

/** The worker's image with a clock that tests can step. */
export const FAULTS_IMAGE = 'idalloc:faults';

/** Runs a build of the worker's image after those that run already: all but the first find most of its layers made. */
export async function buildInTurn<T>(build: () => Promise<T>): Promise<T> {
  const release = await acquireLock(join(cacheDir(process.env), 'worker-image.lock'), { timeoutMs: 3 * BUILD_MS });
  try {
    return await build();
  } finally {
    release();
  }
}

/**
 * Builds the worker's image of this checkout under another name. Pulls the image that it is based on if that is
 * missing.
 */
export function buildWorkerImage(image: string, options: Omit<BuildOptions, 'file'> = {}): Promise<void> {
  return buildInTurn(() => dockerBuild(image, ROOT, { ...options, file: join(ROOT, 'ops/Dockerfile') }));
}

/** Builds the worker's image of this checkout, and on top of it the one with a clock that can be stepped. */
export async function buildWorkerImages(log: Log): Promise<void> {
  await ensureImages(['node'], log);
  log(`building ${DEFAULT_IMAGES.worker} and ${FAULTS_IMAGE}`);
  await buildWorkerImage(DEFAULT_IMAGES.worker);
  await dockerBuild(FAULTS_IMAGE, ROOT, { file: join(ROOT, 'ops/Dockerfile.faults') });
}
