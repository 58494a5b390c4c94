import { spawnSync } from 'node:child_process';
import { randomBytes, randomInt, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { describe, expect, it } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';
import { run } from './main.ts';
import { copySources, MUTANTS, patched, patchedFiles } from './mutants.ts';
import { simulate } from './simulation.ts';
import { NOTHING, seldomIn, tallyOf } from './tally.ts';
import { failsWith } from './unit-hunt.ts';
import { sealed } from './world.ts';

async function runCli(...args: string[]): Promise<{ code: number; out: string; note: string }> {
  const [out, note]: [string[], string[]] = [[], []];
  const code = await run(args, { out: (text) => out.push(text), note: (text) => note.push(text) });
  return { code, out: out.join('\n'), note: note.join('\n') };
}

describe('simulated histories', () => {
  // The suites play hundreds; these show that a seed can be played at all.
  it.each([
    [1, undefined],
    [2, 'take-over'],
  ] as const)('of seed %i pass every check, in scenario %s', async (seed, scenario) => {
    const { faults, history } = await simulate(seed, { scenario });
    expect(faults).toEqual([]);
    expect(tallyOf(history).replies).toBeGreaterThan(10);
  });

  it('of many seeds must have met each hard case several times', () => {
    const all = Object.fromEntries(Object.keys(NOTHING).map((name) => [name, 5])) as unknown as typeof NOTHING;
    expect(seldomIn(all)).toEqual([]);
    expect(seldomIn({ ...all, trims: 4 })).toEqual(['trims']);
    expect(seldomIn(NOTHING)).toHaveLength(Object.keys(NOTHING).length);
  });

  it('of one seed are the same, event for event', async () => {
    const [once, again] = [await simulate(7, { traced: true }), await simulate(7, { traced: true })];
    expect(once.trace.length).toBeGreaterThan(500);
    expect(again.trace).toEqual(once.trace);
    expect(again.history).toEqual(once.history);
  });

  it('of two seeds differ', async () => {
    const [one, other] = [await simulate(7, { traced: true }), await simulate(8, { traced: true })];
    expect(one.trace).not.toEqual(other.trace);
  });

  it('cannot use the real clocks, timers or randomness, which are restored afterwards', async () => {
    // biome-ignore-start lint/plugin: it is disabled, and back afterwards
    const reach = [
      () => Math.random(),
      () => randomBytes(8),
      () => randomUUID(),
      () => randomInt(3),
      () => Date.now(),
      () => performance.now(),
      () => setTimeout(() => {}, 0),
    ];
    for (const real of reach) await expect(sealed(async () => real(), 0)).rejects.toThrow(/real clock/);
    expect(Math.random()).toBeLessThan(1);
    expect(randomBytes(8)).toHaveLength(8);
    // biome-ignore-end lint/plugin: as above
    expect(Date.now()).toBeGreaterThan(0);
  });
});

describe('mutants', () => {
  it.each(MUTANTS)('$name: its patches fit the sources', (mutant) => {
    expect([...patchedFiles(mutant).keys()].toSorted()).toEqual(
      [...new Set(mutant.patches.map(({ file }) => file))].toSorted(),
    );
  });

  // Else a rename in the sources turns a known bug into an exception, which is another bug, and an easier one.
  it('use only names that their files have', () => {
    using copy = copySources();
    const files = MUTANTS.flatMap((mutant, index) =>
      [...patchedFiles(mutant)].map(([file, text]) => {
        const mutated = file.replace(/\.ts$/, `.mutant-${index}.ts`);
        writeFileSync(join(copy.root, mutated), text);
        return mutated;
      }),
    );
    // One that has to be reported, so that a compiler that checked nothing is noticed.
    const control = 'src/control.ts';
    writeFileSync(join(copy.root, control), 'export const control = nowhere;\n');
    const settings = { extends: join(ROOT, 'tsconfig.json'), files: [...files, control], include: ['src/**/*.d.ts'] };
    writeFileSync(join(copy.root, 'tsconfig.json'), JSON.stringify(settings));
    const tsc = join(ROOT, 'node_modules/.bin/tsc');
    const { stdout } = spawnSync(tsc, ['--project', copy.root], { encoding: 'utf8' });
    const unknownNames = stdout.split('\n').filter((line) => /error TS(2304|2339|2551|2552):/.test(line));
    const names = unknownNames.map((line) => {
      const [, index] = /\.mutant-(\d+)\.ts/.exec(line) ?? [];
      return `${MUTANTS[Number(index)]?.name ?? 'control'}: ${line}`;
    });
    expect(names).toEqual([expect.stringMatching(/^control: .*'nowhere'/)]);
  });

  it('are caught by a check, with the seed', async () => {
    const { code, out } = await runCli('--mutant', 'a range off by one', '--json');
    const caught = { mutant: 'a range off by one', caughtBy: 'unique', seeds: 1, seconds: expect.any(Number) };
    expect(JSON.parse(out)).toEqual({ mutants: [caught] });
    expect(code).toBe(0);
  });

  it('are hunted from several seeds to see how rare their catches are', async () => {
    const { code, out } = await runCli('--mutant', 'a range off by one', '--hunts', '3');
    expect(out).toMatch(/^1 mutants, 0 survived\nseeds until a mutant is caught: median \d+, most \d+$/);
    expect(code).toBe(0);
  });

  const byTest = MUTANTS.flatMap(({ name, unit }) => (unit === undefined ? [] : { name, ...unit }));

  it.each(byTest)('$name: $file has the test that catches it', ({ file, title }) => {
    expect(readFileSync(join(ROOT, file), 'utf8').replaceAll("\\'", "'")).toContain(title);
  });

  it('that a unit test catches are survivors unless it runs and fails', async () => {
    const mutant = 'of swaps that share a transaction only the first is compared';
    const { file, title } = byTest.find(({ name }) => name === mutant) as (typeof byTest)[number];
    const [caught, isOther, unknown] = await Promise.all([
      runCli('--mutant', mutant, '--json'),
      failsWith('a range off by one', { file, title }),
      failsWith(mutant, { file, title: 'no test has this title' }).catch(String),
    ]);
    const found = { mutant, caughtBy: `${file}: ${title}`, seeds: null, seconds: expect.any(Number) };
    expect(JSON.parse(caught.out)).toEqual({ mutants: [found] });
    expect(isOther).toBe(false);
    expect(unknown).toContain(`${file} ran no test 'no test has this title'`);
  });

  it('in files that the simulator does not load are rejected', async () => {
    const patch = { file: 'package.json', from: '"name": "idalloc"', to: '"name": "x"' };
    const program = `import { loadMutant } from '${new URL('./mutated.ts', import.meta.url)}';
      await loadMutant(${JSON.stringify({ name: 'a name', patches: [patch] })});`;
    const thread = new Worker(new URL(`data:text/javascript,${encodeURIComponent(program)}`));
    const [error] = await once(thread, 'error');
    expect(String(error)).toMatch(/mutant 'a name' has patches of what was not loaded: file:.*package\.json/);
  });

  it('whose text is missing or ambiguous are rejected as stale', () => {
    expect(() => patched('a b', 'c', 'd', 'somewhere')).toThrow(/stale mutant: somewhere/);
    expect(() => patched('a a', 'a', 'd', 'somewhere')).toThrow(/stale mutant: somewhere/);
    expect(patched('a b', 'a', '$&', 'somewhere')).toBe('$& b');
  });
});

describe('the command line', () => {
  it('plays seeds from a given one, and counts them', async () => {
    const { code, out } = await runCli('--seeds', '3', '--from', '5', '--json');
    expect(code).toBe(0);
    expect(JSON.parse(out)).toMatchObject({ seeds: 3, from: 5, failed: [] });
  });

  it('repeats a seed with its trace', async () => {
    const [once, again] = [await runCli('--seed', '7'), await runCli('--seed', '7')];
    expect(once).toEqual(again);
    expect(once.out.split('\n').length).toBeGreaterThan(500);
    expect(once.note).toBe('seed 7: every check passed');
  });

  it('rejects unknown arguments, and shows help', async () => {
    expect(await runCli('--seeds', 'many')).toMatchObject({
      code: 2,
      note: expect.stringContaining('--seeds is many'),
    });
    expect(await runCli('--sedes', '3')).toMatchObject({ code: 2 });
    expect(await runCli('--changed')).toMatchObject({ code: 2, note: expect.stringContaining('need --mutants') });
    expect(await runCli('--mutants', '--changed', '--others')).toMatchObject({
      code: 2,
      note: expect.stringContaining('exclude each other'),
    });
    expect(await runCli('--help')).toMatchObject({ code: 0, out: expect.stringContaining('--mutants') });
  });
});
