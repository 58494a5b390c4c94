import { getContainerRuntimeClient, type StartedTestContainer } from 'testcontainers';
import { IdallocError } from '../client/index.ts';

type Handle = ReturnType<Awaited<ReturnType<typeof getContainerRuntimeClient>>['container']['getById']>;

/** The entry point of the worker's image. */
const PROGRAM = ['node', 'dist/main.js'];
/** The variable with the file that the clock's offset is read from; set in images with a clock that can be stepped. */
const CLOCK_FILE = 'FAKETIME_TIMESTAMP_FILE';
/** Sets the offset $1 atomically; prints the true time, the time as the worker sees it, and the true time again. */
const STEP = `echo "$1" >"$${CLOCK_FILE}.new" && mv "$${CLOCK_FILE}.new" "$${CLOCK_FILE}" || exit
LD_PRELOAD= date +%s%N; date +%s%N; LD_PRELOAD= date +%s%N`;
/** The rounding error of converting nanoseconds to milliseconds. */
const PRECISION_MS = 1;

/** For operations of the container engine that testcontainers does not offer. */
export async function withHandle<T>(container: StartedTestContainer, use: (handle: Handle) => Promise<T>): Promise<T> {
  return use((await getContainerRuntimeClient()).container.getById(container.getId()));
}

/** Runs an idalloc command in the worker's container, with the worker's variables, and parses its JSON output. */
async function command(container: StartedTestContainer, ...args: string[]): Promise<unknown> {
  const { exitCode, stdout, stderr } = await container.exec([...PROGRAM, ...args]);
  if (exitCode !== 0) throw new Error(`idalloc ${args.join(' ')} failed with ${exitCode}: ${stderr}`);
  return JSON.parse(stdout);
}

/** Evicts this worker from its worker ID, found by its address in the lease record; returns the worker ID. */
export async function evictHolder(container: StartedTestContainer): Promise<number> {
  const { leases } = (await command(container, 'leases', '--json')) as {
    leases: readonly { worker_id: number; holder: { worker_ip: string } | null }[];
  };
  const addresses = container.getNetworkNames().map((network) => container.getIpAddress(network));
  const held = leases.find(({ holder }) => holder !== null && addresses.includes(holder.worker_ip));
  if (held === undefined) {
    throw new IdallocError('NOT_FOUND', `${container.getName()} (${addresses.join()}) currently holds no worker ID`);
  }
  await command(container, 'leases', 'evict', String(held.worker_id), '--yes', '--json');
  return held.worker_id;
}

/** Sets the offset of the container's wall clock from the machine's, and verifies it. */
export async function stepClockTo(container: StartedTestContainer, offsetMs: number): Promise<void> {
  if (!Number.isFinite(offsetMs)) throw new IdallocError('CONFIG_INVALID', `a clock can't be set to ${offsetMs} ms`);
  const { Config } = await withHandle(container, (handle) => handle.inspect());
  if (!Config.Env.some((line) => line.startsWith(`${CLOCK_FILE}=`))) {
    const remedy =
      'docker build -f ops/Dockerfile.faults -t idalloc:faults . in a checkout of idalloc, and use that image';
    throw new IdallocError('CONFIG_INVALID', `the clock of image ${Config.Image} can't be stepped: ${remedy}`);
  }
  const seconds = (offsetMs / 1_000).toFixed(6);
  const offset = offsetMs < 0 ? seconds : `+${seconds}`;
  const { exitCode, stdout, stderr } = await container.exec(['sh', '-c', STEP, 'sh', offset]);
  const [before = 0, seen = 0, after = 0] = stdout.split('\n').map((text) => Number(text) / 1e6);
  if (exitCode !== 0 || !(seen - after <= offsetMs + PRECISION_MS && offsetMs - PRECISION_MS <= seen - before)) {
    const off = `it is off by ${seen - after} to ${seen - before} ms`;
    throw new Error(
      `setting the clock of ${container.getName()} to an offset of ${offset} s failed: ${off}; ${stderr}`,
    );
  }
}
