import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { closedLoop } from './closed-loop.ts';
import { HttpLane } from './http-lane.ts';
import { cpuMsOf } from './running.ts';
import { type Spread, spreadOf } from './spread.ts';
import { median } from './stage.ts';

const BARE = fileURLToPath(new URL('./http-bare.ts', import.meta.url));

interface Shape {
  readonly method: 'GET' | 'POST';
  /** With the query. */
  readonly path: string;
  readonly connections: number;
}
const SHAPES: readonly Shape[] = [
  ...[1, 10, 100].map((connections) => ({ method: 'POST' as const, path: '/api/v1/id', connections })),
  { method: 'GET', path: '/api/v1/ids?count=100', connections: 10 },
];

/** A server that is measured. */
interface Contender {
  readonly url: string;
  readonly pid: number;
}

interface Figures {
  readonly perSecond: number;
  readonly p99Ms: number;
  /** Processor time of the server for a request, which other load on the machine changes less than the rate. */
  readonly cpuUs: number;
}

/** The worker beside Fastify alone. Ratios: worker to bare. */
export interface Beside extends Shape {
  readonly rate: Spread;
  readonly p99: Spread;
  readonly cpu: Spread;
  readonly worker: Figures;
  readonly bare: Figures;
}

async function figuresOf({ url, pid }: Contender, { method, path, connections }: Shape, seconds: number) {
  using stack = new DisposableStack();
  const lanes: HttpLane[] = [];
  for (let i = 0; i < connections; i += 1) lanes.push(stack.use(await HttpLane.open(url, method, path)));
  const [beforeMs, free] = [cpuMsOf(pid), [...lanes]];
  let asked = 0;
  const { perSecond, p99Ms } = await closedLoop(
    async () => {
      const lane = free.pop() as HttpLane;
      await lane.ask();
      free.push(lane);
      asked += 1;
    },
    connections,
    seconds,
  );
  return { perSecond, p99Ms, cpuUs: (1_000 * (cpuMsOf(pid) - beforeMs)) / asked };
}

/** Measures both in turn, round by round, after one round to warm up; which is first changes with each. */
export async function besideBare(worker: Contender, rounds: number, seconds: number): Promise<readonly Beside[]> {
  const child = spawn(process.execPath, [BARE], { stdio: ['ignore', 'pipe', 'inherit'] });
  try {
    const [url] = await once(createInterface({ input: child.stdout }), 'line');
    const bare = { url: String(url), pid: child.pid as number };
    const all: Beside[] = [];
    for (const shape of SHAPES) {
      const pairs: { readonly worker: Figures; readonly bare: Figures }[] = [];
      for (let round = 0; round <= rounds; round += 1) {
        const isBareFirst = round % 2 === 0;
        const first = await figuresOf(isBareFirst ? bare : worker, shape, seconds);
        const second = await figuresOf(isBareFirst ? worker : bare, shape, seconds);
        if (round > 0) pairs.push(isBareFirst ? { worker: second, bare: first } : { worker: first, bare: second });
      }
      all.push(resultOf(shape, pairs));
    }
    return all;
  } finally {
    child.kill();
  }
}

function resultOf(shape: Shape, pairs: readonly { readonly worker: Figures; readonly bare: Figures }[]): Beside {
  const spread = (name: keyof Figures) => spreadOf(pairs.map(({ worker, bare }) => worker[name] / bare[name]));
  const of = (server: 'worker' | 'bare') => {
    const middle = (name: keyof Figures) => Number(median(pairs.map((pair) => pair[server][name])).toFixed(2));
    return { perSecond: Math.round(middle('perSecond')), p99Ms: middle('p99Ms'), cpuUs: middle('cpuUs') };
  };
  const ratios = { rate: spread('perSecond'), p99: spread('p99Ms'), cpu: spread('cpuUs') };
  return { ...shape, ...ratios, worker: of('worker'), bare: of('bare') };
}
