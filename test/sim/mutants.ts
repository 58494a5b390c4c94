import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { simulate } from './simulation.ts';

/** One mistake that somebody could make, as exact replacements in files of this repository. */
export interface Mutant {
  readonly name: string;
  readonly patches: readonly { readonly file: string; readonly from: string; readonly to: string }[];
}

const patch = (file: string, from: string, to: string) => ({ file, from, to });

export const MUTANTS: readonly Mutant[] = [
  {
    name: 'settle ignores the base offset',
    patches: [
      patch(
        'src/pipeline/ledger.ts',
        'if (this.#index.end(partition) < baseOffset) await this.#follower.reached(partition, baseOffset);',
        '',
      ),
      patch(
        'src/pipeline/ledger.ts',
        'offset: baseOffset + i, appendedAtMs',
        'offset: this.#index.end(partition) + i, appendedAtMs',
      ),
    ],
  },
  {
    name: 'no answer taken as success',
    patches: [
      patch(
        'src/pipeline/ledger.ts',
        'await this.#catchUp(partition, error);\n      throw error;',
        'await this.#catchUp(partition, error);\n      return { baseOffset: this.#index.end(partition), appendedAtMs: 0 };',
      ),
    ],
  },
  {
    name: 'no nonce read-back',
    patches: [
      patch(
        'src/identity/identity.ts',
        'const found = readBack(asked, owner, ceiling);',
        `const stored = swap && ceiling ? { ...swap, modRevision: ceiling.modRevision } : asked.stored;
    const found = { ...readBack({ ...reign, stored }, owner, ceiling), kind: 'ours' as const, reign: { ...reign, stored } };
    if (owner?.createRevision !== reign.fence) return await this.#lose(turn, 'the owner key is gone');`,
      ),
    ],
  },
  {
    name: '>= in place of == in the swap',
    // The comparison is etcd's, and the port offers equality only: it is the store that has to be wrong.
    patches: [
      patch(
        'test/identity/fake-etcd.ts',
        '(kv?.modRevision ?? 0n) === compare.modRevision',
        '(kv?.modRevision ?? 0n) >= compare.modRevision',
      ),
    ],
  },
  {
    name: 'start at the own clock rather than the ceiling',
    patches: [
      patch('src/identity/choose.ts', 'waitMs: ceilingWaitMs(layout, ceiling.ticks, now)', 'waitMs: 0'),
      patch('src/identity/choose.ts', 'import { ceilingWaitMs, MAX', 'import { MAX'),
      patch('src/identity/reign.ts', 'from: ceiling.ticks,', 'from: toTicks(layout, sent.wall),'),
    ],
  },
  {
    name: 'deadline counted from the answer',
    patches: [
      patch(
        'src/identity/identity.ts',
        'const renewed = { ...found.reign, sent };',
        'const renewed = { ...found.reign, sent: this.#settings.readClock().reading };',
      ),
    ],
  },
  {
    name: 'ceiling attached to the lease',
    patches: [
      patch(
        'src/identity/protocol.ts',
        '{ put: ceiling, value: encodeCeiling(attempt.swap) }',
        '{ put: ceiling, value: encodeCeiling(attempt.swap), leaseId: attempt.leaseId }',
      ),
    ],
  },
  {
    name: 'sequence reset before the rollback check',
    patches: [
      patch(
        'src/core/generator.ts',
        'ticks(Math.max(nextTicks, from,',
        'ticks(Math.max(nowTicks < nextTicks ? from : nextTicks, from,',
      ),
    ],
  },
  {
    name: 'a range off by one',
    patches: [
      patch(
        'src/core/generator.ts',
        'nextSequence = full ? 0 : sequence + size;',
        'nextSequence = full ? 0 : sequence + size - 1;',
      ),
    ],
  },
  {
    name: 'offsets committed before replies',
    patches: [
      patch(
        'src/pipeline/batch.ts',
        'await processPart(deps, partition, part);\n    control.resolved(last.record.offset);',
        'control.resolved(last.record.offset);\n    await processPart(deps, partition, part);',
      ),
    ],
  },
  {
    name: 'index applied before the append is acknowledged',
    patches: [
      patch(
        'src/pipeline/ledger.ts',
        'const appended = await this.#append(partition, draft);',
        `const guess = this.#index.end(partition);
    this.#index.apply(partition, draft.entries.map((drafted, i) => ({ ...drafted, offset: guess + i, appendedAtMs: 0 })));
    const appended = await this.#append(partition, draft);`,
      ),
    ],
  },
  {
    name: "a loser near the log's start applied",
    // The index under simulation is the one in memory; the real one is held to the same claims by its own tests.
    patches: [patch('test/support/memory-index.ts', 'const known = end >= at.origin;', 'const known = true;')],
  },
  {
    name: 'a restore that retention has overtaken goes on',
    patches: [patch('src/pipeline/follower.ts', 'if (due < low) {', 'if (following && due < low) {')],
  },
  {
    name: 'two appends in flight for one partition',
    patches: [
      patch(
        'src/pipeline/ledger.ts',
        'const before = this.#turns.get(partition) ?? Promise.resolve();',
        'const before = Promise.resolve();',
      ),
    ],
  },
  {
    name: 'witness ignored',
    patches: [
      patch('src/identity/protocol.ts', '  requireNotRestored(view, snapshot, descriptor.uuid);\n', ''),
      patch('src/identity/protocol.ts', '  requireUnopposed(view, { ...own, from: reservation.from });\n', ''),
      patch('src/identity/protocol.ts', '    requireUnused(view);\n', ''),
      patch('src/identity/namespace.ts', '      requireNotRestored(view, snapshot, descriptor.uuid);\n', ''),
      patch('src/identity/namespace.ts', '    requireUnused(view);\n', ''),
    ],
  },
  {
    name: 'etcd read before the witness',
    patches: [
      patch(
        'src/identity/protocol.ts',
        'const view = await witness.read();\n  const snapshot = await readSnapshot(etcd, keys);',
        'const snapshot = await readSnapshot(etcd, keys);\n  const view = await witness.read();',
      ),
    ],
  },
  {
    name: 'a rebuild from the ceilings alone',
    patches: [
      patch(
        'src/identity/rebuild.ts',
        'const used = Math.max(toTicks(layout, now), ledger ?? 0, ceilings ?? 0, witnesses ?? 0);',
        'const used = ceilings ?? 0;',
      ),
    ],
  },
  {
    name: 'a UUID that is not compared',
    patches: [patch('src/identity/witness.ts', 'return seal === uuid ? undefined : seal;', 'return undefined;')],
  },
];

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
const COPIED = ['package.json', 'schemas', 'src', 'test/sim', 'test/support', 'test/identity'];

/** The simulator of a copy of this repository with one mistake in it; throws when a patch fits no longer. */
export interface Patched extends Disposable {
  readonly simulate: typeof simulate;
}

/**
 * Copies the sources, makes the mistake, and loads the simulator from there: the mistake is then in the very code that
 * ships, at the place where it would be made, and a patch that no longer fits is seen to be stale.
 */
export async function loadMutant(mutant: Mutant): Promise<Patched> {
  const root = mkdtempSync(join(tmpdir(), 'idalloc-mutant-'));
  const remove = (): void => rmSync(root, { recursive: true, force: true });
  try {
    for (const path of COPIED) cpSync(join(ROOT, path), join(root, path), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules'), join(root, 'node_modules'), 'dir');
    for (const [file, text] of patchedFiles(mutant)) writeFileSync(join(root, file), text);
    const loaded = await import(pathToFileURL(join(root, 'test/sim/simulation.ts')).href);
    return { simulate: loaded.simulate, [Symbol.dispose]: remove };
  } catch (error) {
    remove();
    throw error;
  }
}

/** Each file of the mutant as it would be. Throws when a patch fits no longer. */
export function patchedFiles({ name, patches }: Mutant): ReadonlyMap<string, string> {
  const texts = new Map<string, string>();
  for (const { file, from, to } of patches) {
    const text = texts.get(file) ?? readFileSync(join(ROOT, file), 'utf8');
    texts.set(file, patched(text, from, to, `${name}: ${file}`));
  }
  return texts;
}

/** The text with one replacement. Throws unless `from` stands in it exactly once. */
export function patched(text: string, from: string, to: string, where: string): string {
  const parts = text.split(from);
  if (parts.length !== 2) throw new Error(`stale mutant: ${where} has the text ${parts.length - 1} times: ${from}`);
  return parts.join(to);
}
