import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import type { Scenario } from './scenario.ts';
import type { simulate } from './simulation.ts';

/** One mistake that somebody could make, as exact replacements in files of this repository. */
export interface Mutant {
  readonly name: string;
  /** Where only this can show it, nothing else is played. */
  readonly scenario?: Scenario;
  readonly patches: readonly { readonly file: string; readonly from: string; readonly to: string }[];
}

const patch = (file: string, from: string, to: string) => ({ file, from, to });

export const MUTANTS: readonly Mutant[] = [
  {
    name: 'settle ignores the base offset',
    patches: [
      patch(
        'src/pipeline/ledger.ts',
        '      await this.#follower.reached(partition, baseOffset);\n    }\n    this.#requireTrusted',
        '    }\n    this.#requireTrusted',
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
        'const appended = await this.#append(partition, draft, release);',
        `const guess = this.#index.end(partition);
    this.#index.apply(partition, draft.entries.map((drafted, i) => ({ ...drafted, offset: guess + i, appendedAtMs: 0 })));
    const appended = await this.#append(partition, draft, release);`,
      ),
    ],
  },
  {
    name: "a loser near the log's start applied",
    scenario: 'retention',
    // The index under simulation is the one in memory; the real one is held to the same claims by its own tests.
    patches: [patch('test/support/memory-index.ts', 'const known = end >= at.origin;', 'const known = true;')],
  },
  {
    name: 'a restore that retention has overtaken goes on',
    scenario: 'retention',
    // Whoever reads notices it by the offset, and whoever looks after the index by the bounds: each is enough.
    patches: [
      patch('src/pipeline/follower.ts', 'if (due < low) {', 'if (following && due < low) {'),
      patch(
        'src/adapters/kafka/ledger-reader.ts',
        'sink.distrust(partition, `offset',
        'void [sink, position, end]; false && sink.distrust(partition, `offset',
      ),
    ],
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
    scenario: 'etcd-loss',
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
    scenario: 'etcd-loss',
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
    scenario: 'late-witness',
    patches: [patch('src/identity/witness.ts', 'return seal === uuid ? undefined : seal;', 'return undefined;')],
  },
  {
    name: 'replies acknowledged by the leader alone',
    patches: [
      patch('src/kafka/loops/append.ts', 'acks: -1', "acks: appending.lane === 'publish' ? (1 as unknown as -1) : -1"),
    ],
  },
  {
    name: 'ledger entries acknowledged by the leader alone',
    patches: [
      patch('src/kafka/loops/append.ts', 'acks: -1', "acks: topic === 'id.ledger' ? (1 as unknown as -1) : -1"),
    ],
  },
  {
    name: 'the seal of a rebuild written after reading',
    scenario: 'late-witness',
    patches: [
      patch(
        'src/identity/rebuild.ts',
        '  await witness.write([{ seal: wanted.uuid }]);\n  const remains = await readRemains(etcd, witness, keys);',
        '  const remains = await readRemains(etcd, witness, keys);\n  await witness.write([{ seal: wanted.uuid }]);',
      ),
    ],
  },
  {
    name: 'the descriptor written without comparing its absence',
    scenario: 'mixed',
    patches: [patch('src/identity/namespace.ts', 'attempt(etcd, [absent, there],', 'attempt(etcd, [there],')],
  },
  {
    name: 'one nonce for all attempts',
    scenario: 'etcd-loss',
    patches: [patch('src/worker/identity-holder.ts', 'newNonce: runtime.uuid', "newNonce: () => 'nonce'")],
  },
  {
    name: 'no suspension when the process stood still',
    patches: [
      patch(
        'src/worker/guarded-clock.ts',
        "if (stoodMs > MAX_PAUSE_MS && verdict.kind !== 'eject') this.#onPause?.(reading);",
        '',
      ),
    ],
  },
  {
    name: 'no marker at a take-over',
    patches: [patch('src/worker/request-side.ts', 'for (const partition of added) this.#mark(partition);', '')],
  },
  {
    name: 'the allocator reads the clock past its guard',
    patches: [
      patch(
        'src/worker/worker.ts',
        'readClock: () => clock.read(),',
        "readClock: () => ({ reading: clockReader(runtime.wallMs, runtime.monotonicMs)(), verdict: { kind: 'steady' } }),",
      ),
    ],
  },
  {
    name: 'an index that was thrown away is not restored',
    patches: [patch('src/worker/ledger-side.ts', '        this.#follower?.restore(cause);\n', '')],
  },
  {
    name: 'a horizon that forgets too much',
    patches: [
      patch(
        'src/pipeline/decide.ts',
        'const horizon = deps.index.horizon(partition);',
        'const horizon = deps.index.through(partition);',
      ),
    ],
  },
  {
    name: 'a marker that claims all requests',
    patches: [
      patch(
        'src/pipeline/ledger.ts',
        'const atLeast = this.#index.horizon(partition) === undefined ? requestEnd - 1 : -1;',
        'const atLeast = requestEnd - 1;',
      ),
    ],
  },
  {
    name: 'offsets committed for partitions that are gone',
    patches: [
      patch('src/worker/request-group.ts', 'for (const partition of removed) this.#end(partition);', ''),
      patch('src/kafka/loops/member.ts', 'if (isPresent() && foreign !== undefined)', 'if (foreign === -1)'),
    ],
  },
  {
    name: 'reading goes on at the end when its offset is gone',
    patches: [
      patch(
        'src/worker/request-group.ts',
        'outOfRange: ({ logStart }, position)',
        'outOfRange: ({ end: logStart }, position)',
      ),
    ],
  },
  {
    name: 'aborted requests served',
    patches: [patch('src/kafka/records/decode.ts', "isolation === 'read_committed' ? fetched.aborted : []", '[]')],
  },
  {
    name: 'markers of transactions taken for requests',
    patches: [
      patch(
        'src/kafka/records/decode.ts',
        'return isControl || lastOffset < this.next;',
        'return lastOffset < this.next;',
      ),
    ],
  },
  {
    name: 'a batch that the fetch cut off is passed over',
    patches: [
      patch(
        'src/kafka/records/decode.ts',
        '    if (end > bytes.length) break;',
        '    if (end > bytes.length) {\n      if (at + AT.records < bytes.length) reading.next = readHead(bytes.subarray(at)).lastOffset + 1;\n      break;\n    }',
      ),
    ],
  },
  {
    name: 'records below the offset asked for handed on',
    patches: [
      patch(
        'src/kafka/records/decode.ts',
        'if (record.offset >= this.next) this.records.push(record);',
        'this.records.push(record);',
      ),
    ],
  },
  {
    name: 'a partition that nobody gets',
    patches: [
      patch(
        'src/kafka/loops/assigner.ts',
        'for (const seat of seats) free.push(...handBack(seat, claimants));',
        'for (const seat of seats) handBack(seat, claimants);',
      ),
    ],
  },
  {
    name: 'a closed gate counts requests as answered',
    patches: [
      patch('src/pipeline/request-session.ts', 'if (!this.#open) await this.#woken();', 'if (!this.#open) break;'),
    ],
  },
  {
    name: 'no answer to a reply taken as delivered',
    patches: [
      patch(
        'src/adapters/kafka/publisher.ts',
        'if (!isRecordFault(fault)) return error;',
        'if (!isRecordFault(fault)) {\n        for (const { index } of records) deliveries[index] = { ok: true };\n        return undefined;\n      }',
      ),
    ],
  },
  {
    name: 'a call without a deadline',
    patches: [
      patch(
        'src/kafka/wire/deadlines.ts',
        'this.#runtime.schedule(this.#left(deadlineMs), () => end(late()))',
        'this.#runtime.schedule(this.#left(deadlineMs), () => void late)',
      ),
    ],
  },
  {
    name: 'the witness not read to its end',
    scenario: 'slow-readers',
    patches: [
      patch('src/adapters/kafka/witness-topic.ts', 'await follower.reached(base + messages.length - 1, over);', ''),
    ],
  },
  {
    name: 'ready though no broker answers',
    patches: [
      patch('src/worker/worker.ts', "if (silentMs > KAFKA_SILENCE_MS) return 'KAFKA_UNAVAILABLE';", 'void silentMs;'),
    ],
  },
  {
    name: 'ready though the group is lost',
    patches: [
      patch('src/worker/membership.ts', 'return this.#member?.joined ?? false;', 'return this.#member !== undefined;'),
    ],
  },
  {
    name: 'a worker ID claimed by a clock that nobody compared',
    patches: [
      patch(
        'src/identity/choose.ts',
        "choice.kind === 'take' ? await doubtClock(settings, snapshot) : undefined",
        'undefined && (await doubtClock(settings, snapshot))',
      ),
    ],
  },
];

const ROOT = fileURLToPath(new URL('../..', import.meta.url));
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
