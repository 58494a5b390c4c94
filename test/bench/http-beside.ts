import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { closedLoop } from './closed-loop.ts';
import { HttpLane } from './http-lane.ts';
import { fineCpuMsOf } from './running.ts';
import { type Spread, spreadOf } from './spread.ts';
import { median } from './stage.ts';

const BARE = fileURLToPath(new URL('./http-bare.ts', import.meta.url));

interface Shape {
  readonly method: 'GET' | 'POST';
  /** With the query. */
  readonly path: string;
  readonly connections: number;
}
const ONE_ID: readonly Shape[] = [1, 10, 100].map((connections) => ({
  method: 'POST',
  path: '/api/v1/id',
  connections,
}));
const SHAPES: readonly Shape[] = [...ONE_ID, { method: 'GET', path: '/api/v1/ids?count=100', connections: 10 }];

/** A server that is measured. */
interface Contender {
  readonly url: string;
  readonly pid: number;
  /** More lines of the head of each request. */
  readonly more?: () => string;
}

interface Figures {
  readonly perSecond: number;
  readonly p99Ms: number;
  /**
   * Processor time of the server for a request, which other load on the machine changes less than the rate; NaN if the
   * system does not report it.
   */
  readonly cpuUs: number;
}

/** One beside another. Ratios: of the first to the second. */
export interface Beside extends Shape {
  readonly rate: Spread;
  readonly p99: Spread;
  /** Undefined if the system does not report processor times. */
  readonly cpu: Spread | undefined;
  readonly first: Figures;
  readonly second: Figures;
}

async function figuresOf({ url, pid, more }: Contender, { method, path, connections }: Shape, seconds: number) {
  using stack = new DisposableStack();
  const lanes: HttpLane[] = [];
  for (let i = 0; i < connections; i += 1) lanes.push(stack.use(await HttpLane.open(url, method, path)));
  const [beforeMs, free] = [fineCpuMsOf(pid), [...lanes]];
  let asked = 0;
  const { perSecond, p99Ms } = await closedLoop(
    async () => {
      const lane = free.pop() as HttpLane;
      await lane.ask(more?.());
      free.push(lane);
      asked += 1;
    },
    connections,
    seconds,
  );
  return { perSecond, p99Ms, cpuUs: (1_000 * (fineCpuMsOf(pid) - beforeMs)) / asked };
}

/** The worker beside Fastify alone. */
export async function besideBare(worker: Contender, rounds: number, seconds: number): Promise<readonly Beside[]> {
  const child = spawn(process.execPath, [BARE], { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    const [url] = await once(createInterface({ input: child.stdout }), 'line');
    return await besideEach(SHAPES, worker, { url: String(url), pid: child.pid as number }, rounds, seconds);
  } finally {
    child.kill();
  }
}

/**
 * Requests with a new Idempotency-Key each, which the ledger decides, beside those without. The worker is alone, so it
 * does all of the work.
 */
export async function keysBesideNone(worker: Contender, rounds: number, seconds: number): Promise<readonly Beside[]> {
  let keys = 0;
  const more = () => {
    keys += 1;
    return `Idempotency-Key: bench-${keys}\r\n`;
  };
  return await besideEach(ONE_ID, { ...worker, more }, worker, rounds, seconds);
}

/** Measures both in turn, round by round, after one round to warm up; which begins changes with each. */
async function besideEach(
  shapes: readonly Shape[],
  first: Contender,
  second: Contender,
  rounds: number,
  seconds: number,
): Promise<readonly Beside[]> {
  const all: Beside[] = [];
  for (const shape of shapes) {
    const pairs: Pair[] = [];
    for (let round = 0; round <= rounds; round += 1) {
      const order = round % 2 === 0 ? [second, first] : [first, second];
      const figures = new Map<Contender, Figures>();
      for (const one of order) figures.set(one, await figuresOf(one, shape, seconds));
      if (round > 0) pairs.push({ first: figures.get(first) as Figures, second: figures.get(second) as Figures });
    }
    all.push(resultOf(shape, pairs));
  }
  return all;
}

interface Pair {
  readonly first: Figures;
  readonly second: Figures;
}

function resultOf(shape: Shape, pairs: readonly Pair[]): Beside {
  const spread = (name: keyof Figures) => spreadOf(pairs.map(({ first, second }) => first[name] / second[name]));
  const of = (server: keyof Pair) => {
    const middle = (name: keyof Figures) => Number(median(pairs.map((pair) => pair[server][name])).toFixed(2));
    return { perSecond: Math.round(middle('perSecond')), p99Ms: middle('p99Ms'), cpuUs: middle('cpuUs') };
  };
  const hasCpu = pairs.every(({ first, second }) => first.cpuUs > 0 && second.cpuUs > 0);
  const ratios = { rate: spread('perSecond'), p99: spread('p99Ms'), cpu: hasCpu ? spread('cpuUs') : undefined };
  return { ...shape, ...ratios, first: of('first'), second: of('second') };
}
