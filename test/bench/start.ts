import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

const MAIN = join(import.meta.dirname, '../../src/main.ts');

/**
 * What it costs to start commands and a worker: CPU seconds and wall time, as a ratio to an empty program of the same
 * run. Each start is measured without compiled code of an earlier one (cold), and with it (warm). Rounds take turns, so
 * that other load on the machine affects all of them alike; the least of the rounds counts. Commands that ask servers
 * are measured if the environment names some.
 */
const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '3' },
    main: { type: 'string', default: MAIN },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write(
    [
      'Measures the start of commands and of a worker: CPU and wall ms, as a ratio to an empty program.',
      'npm run bench:start -- [--rounds 3] [--main PATH] [--json]',
      'With KAFKA_BROKERS and ETCD_ENDPOINTS, as `npm start` prints them, also commands that ask these servers.',
      '  --rounds    the least of the rounds is printed',
      '  --main      main.ts of another checkout, or main.js of a package, to compare it',
      '',
    ].join('\n'),
  );
  process.exit(0);
}

/** No server has these addresses, and the index can't be created there: the worker logs its first lines and exits. */
const WORKER = {
  KAFKA_BROKERS: '127.0.0.1:1',
  ETCD_ENDPOINTS: 'http://127.0.0.1:1',
  DATACENTER_ID: '0',
  API_PORT: 'off',
  OPS_PORT: '0',
  INDEX_DIR: '/dev/null/index',
};
interface Start {
  readonly args: readonly string[];
  readonly env?: NodeJS.ProcessEnv;
}

const { env } = process;
/** Commands that change nothing but the topic of replies. */
const ASKING = ['doctor', 'topics check', 'leases', 'sequence list', 'request'];
const asking = env.KAFKA_BROKERS && env.ETCD_ENDPOINTS ? ASKING : [];

const EMPTY = 'node -e 0';
const STARTS: Readonly<Record<string, Start>> = {
  [EMPTY]: { args: ['-e', '0'] },
  '--version': { args: [values.main, '--version'] },
  '--help': { args: [values.main, '--help'] },
  'decode 1': { args: [values.main, 'decode', '1'] },
  'request --help': { args: [values.main, 'request', '--help'] },
  'doctor --help': { args: [values.main, 'doctor', '--help'] },
  'worker --help': { args: [values.main, 'worker', '--help'] },
  'worker, without configuration': { args: [values.main, 'worker'] },
  'worker, until it opens its index': { args: [values.main, 'worker'], env: WORKER },
  ...Object.fromEntries(asking.map((command) => [command, { args: [values.main, ...command.split(' ')], env }])),
};

interface Cost {
  readonly cpuMs: number;
  readonly wallMs: number;
}

/** Prints on descriptor 3 what the process used, at its end. */
const METER = `data:text/javascript,${encodeURIComponent(
  "import { writeSync } from 'node:fs'; process.on('exit', () => { const { userCPUTime, systemCPUTime } = process.resourceUsage(); writeSync(3, String(userCPUTime + systemCPUTime)); });",
)}`;

function start({ args, env = {} }: Start, caching: Readonly<Record<string, string>>): Promise<Cost> {
  const begunMs = performance.now();
  const child = spawn(process.execPath, ['--import', METER, ...args], {
    env: { ...env, ...caching },
    stdio: ['ignore', 'ignore', 'ignore', 'pipe'],
  });
  let used = '';
  child.stdio[3]?.on('data', (text) => {
    used += text;
  });
  return new Promise((resolve, reject) => {
    child.once('error', reject);
    child.once('close', () => resolve({ cpuMs: Number(used) / 1_000, wallMs: performance.now() - begunMs }));
  });
}

const cache = mkdtempSync(join(tmpdir(), 'idalloc-start-'));
const CACHING = { cold: { NODE_DISABLE_COMPILE_CACHE: '1' }, warm: { NODE_COMPILE_CACHE: cache } } as const;
type Temperature = keyof typeof CACHING;
const TEMPERATURES = Object.keys(CACHING) as Temperature[];

const costs = new Map<string, Cost[]>();
try {
  for (const one of Object.values(STARTS)) await start(one, CACHING.warm); // fills the cache
  for (let round = 0; round < Number(values.rounds); round += 1) {
    for (const temperature of TEMPERATURES) {
      for (const [name, one] of Object.entries(STARTS)) {
        const key = `${temperature} ${name}`;
        costs.set(key, [...(costs.get(key) ?? []), await start(one, CACHING[temperature])]);
      }
    }
  }
} finally {
  rmSync(cache, { recursive: true });
}

function least(temperature: Temperature, name: string, what: keyof Cost): number {
  return Math.min(...(costs.get(`${temperature} ${name}`) ?? []).map((cost) => cost[what]));
}

const rows = Object.keys(STARTS).flatMap((name) =>
  TEMPERATURES.map((temperature) => {
    const [cpuMs, wallMs] = [least(temperature, name, 'cpuMs'), least(temperature, name, 'wallMs')];
    const ratio = cpuMs / least(temperature, EMPTY, 'cpuMs');
    return { name, temperature, cpuMs: Math.round(cpuMs), wallMs: Math.round(wallMs), ratio: Number(ratio.toFixed(1)) };
  }),
);
if (values.json) process.stdout.write(`${JSON.stringify({ rows })}\n`);
else {
  process.stdout.write(`${'start'.padEnd(34)} cache   CPU ms  wall ms  CPU ratio\n`);
  for (const { name, temperature, cpuMs, wallMs, ratio } of rows) {
    const numbers = `${String(cpuMs).padStart(6)}  ${String(wallMs).padStart(7)}  ${ratio.toFixed(1).padStart(9)}`;
    process.stdout.write(`${name.padEnd(34)} ${temperature}    ${numbers}\n`);
  }
}
