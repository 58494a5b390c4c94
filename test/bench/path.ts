import { mkdtempDisposableSync } from 'node:fs';
import { type Profiler, Session } from 'node:inspector/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { optionsOf } from './options.ts';
import { ServedPath } from './served-path.ts';

/**
 * Processor time of one request on its way through a worker, without servers: `ServedPath` describes it. So sockets,
 * the wire's framing and waiting are left out, and the figure varies far less than that of a whole worker. With
 * --profile also by room.
 */
const values = optionsOf(
  'bench:path',
  ['Measures the processor time of a request on its way through a worker, without servers, sockets and waiting.'],
  { requests: 400_000, rounds: 9, partitions: 8, profile: false },
  { profile: 'the share of each room of the source in it as well, in percent' },
);
const { rounds } = values;
const perRound = Math.ceil(values.requests / rounds);

const IDLE = '(idle)';

/** The room of the source that a function is in; what is not ours goes by its package, or its own name. */
function roomOf({ functionName, url }: Profiler.ProfileNode['callFrame']): string {
  const [, ours] = /\/src\/(.*)\/[^/]*$/.exec(url) ?? [];
  if (ours !== undefined) return ours.split('/').slice(0, 2).join('/');
  const [, library] = /\/node_modules\/([^/]+)/.exec(url) ?? [];
  if (library !== undefined) return library;
  if (url === 'node:inspector') return IDLE; // what starts and stops the profile
  if (url.startsWith('node:')) return 'node';
  return url === '' ? functionName : 'bench';
}

/** The share of each room in the time that the profile has, in percent, the largest first. */
function shares({ nodes, samples = [], timeDeltas = [] }: Profiler.Profile): Record<string, number> {
  const rooms = new Map(nodes.map(({ id, callFrame }) => [id, roomOf(callFrame)]));
  const spent = new Map<string, number>();
  samples.forEach((id, i) => {
    const room = rooms.get(id) ?? '';
    if (room !== IDLE) spent.set(room, (spent.get(room) ?? 0) + (timeDeltas[i] ?? 0));
  });
  const all = [...spent.values()].reduce((sum, us) => sum + us, 0);
  const sorted = [...spent].sort(([, one], [, other]) => other - one);
  return Object.fromEntries(sorted.map(([room, us]) => [room, Number(((100 * us) / all).toFixed(1))]));
}

using directory = mkdtempDisposableSync(join(tmpdir(), 'idalloc-path-'));
using path = new ServedPath(directory.path, values.partitions);
await path.serve(100_000); // compiles the code
const session = new Session();
session.connect();
const found: number[] = [];
const profiles: Profiler.Profile[] = [];
await session.post('Profiler.enable');
for (let round = 1; round <= rounds; round += 1) {
  const served = path.prepare(perRound);
  if (values.profile) await session.post('Profiler.start');
  found.push(await served());
  if (values.profile) profiles.push((await session.post('Profiler.stop')).profile);
}
session.disconnect();
found.sort((one, other) => one - other);
const [cpu_us, least_us] = [found[Math.floor(rounds / 2)] ?? Number.NaN, found[0] ?? Number.NaN];
const rooms = profiles[rounds - 1] === undefined ? {} : { rooms: shares(profiles[rounds - 1] as Profiler.Profile) };
const result = { cpu_us: Number(cpu_us.toFixed(2)), least_us: Number(least_us.toFixed(2)), ...rooms };
const text = [
  `${result.cpu_us} us of processor time for each request, at least ${result.least_us}`,
  ...Object.entries(rooms.rooms ?? {}).map(([room, share]) => `${String(share).padStart(6)} % ${room}`),
];
process.stdout.write(`${values.json ? JSON.stringify(result) : text.join('\n')}\n`);
