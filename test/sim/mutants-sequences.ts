import { type Mutant, patch, unitTest } from './mutant.ts';

const DRAFTS = 'src/pipeline/decide.ts';
const NUMBERS = 'src/pipeline/numbers.ts';
const LOOK = 'src/pipeline/numbers-look.ts';
const HEADS = 'src/ledger/heads.ts';
const ORDER = 'src/ledger/sequence-order.ts';

/** Mistakes about the numbers of sequences. */
export const SEQUENCE_MUTANTS: readonly Mutant[] = [
  {
    name: 'numbers count wherever they lie',
    scenario: 'two-owners',
    patches: [
      patch('src/codec/ledger-entry.ts', 'return at === undefined || at === RENEWAL || at === offset;', 'return true;'),
    ],
  },
  {
    name: 'the requests of an append get the same numbers',
    patches: [
      patch(
        'src/pipeline/numbers-look.ts',
        'sequences.set(sequence, { ...(known as Statement), next: first + count * step });',
        'sequences.set(sequence, known);',
      ),
      patch('src/ledger/sequence-rule.ts', 'if (firstOf(record) !== next) {', 'if (firstOf(record) > next) {'),
    ],
  },
  {
    name: 'the home of a sequence is that of its requests',
    patches: [
      patch(
        'src/codec/request.ts',
        "  return request.sequence === undefined ? decidingIdOf(request) : Buffer.from(request.sequence, 'latin1');",
        '  return decidingIdOf(request);',
      ),
    ],
  },
  {
    name: 'numbers are replied as they were sent',
    scenario: 'two-owners',
    patches: [
      patch(LOOK, '  if (baseOffset !== view.end) return OVERTAKEN;\n', ''),
      patch(LOOK, "entry.kind !== 'numbers' || !firsts.has(offset)) continue;", "entry.kind !== 'numbers') continue;"),
    ],
  },
  {
    name: 'a renewal counts as new numbers',
    firstSeed: 13,
    patches: [patch(DRAFTS, '...again, at: RENEWAL }', '...again, at: view.end }')],
  },
  {
    name: 'numbers beyond the largest one',
    patches: [
      patch(
        'src/core/sequence-row.ts',
        "return known.next + (count - 1) * known.step > known.max ? 'SEQUENCE_EXHAUSTED' : undefined;",
        'return undefined;',
      ),
    ],
  },
  {
    name: 'numbers are not swapped in',
    patches: [
      patch(
        NUMBERS,
        'heads.swap(part.partition, known.head, change)',
        'Promise.resolve(Object.assign({}, known.head, { pending: change.pending, through: change.through, ' +
          'sequences: new Map([...known.head.sequences, ...change.sequences]) }))',
      ),
    ],
  },
  {
    name: 'numbers are appended before they are swapped in',
    patches: [
      patch(
        LOOK,
        'if (change !== undefined) return',
        "if (change !== undefined) await append(deps, part, { known, seen }, { kind: 'pending', records: change.pending });\n" +
          '      if (change !== undefined) return',
      ),
    ],
  },
  {
    name: 'a swap leaves nothing pending',
    patches: [
      patch(
        HEADS,
        'encodePending({ namespace, through, records: pending })',
        'encodePending({ namespace, through, records: [] })',
      ),
    ],
  },
  {
    name: 'a restored copy shows what the one before did',
    unit: unitTest(
      'test/pipeline/numbers-lost.test.ts',
      'is stopped if the ledger has lost and contradicts what this worker had seen in it',
    ),
    patches: [
      patch(
        NUMBERS,
        'shown: isSame && before.life === life ? before.shown : new Map(),',
        'shown: isSame ? before.shown : new Map(),',
      ),
    ],
  },
  {
    name: 'a loss forgets nothing',
    unit: unitTest(
      'test/pipeline/numbers-lost.test.ts',
      'gets the statement of a loss; no number is given twice, and what was decided in the lost part is FORGOTTEN',
    ),
    patches: [
      patch(
        'src/pipeline/numbers.ts',
        'this.#through ??= Math.max(known, (await ledger.requestEnd(partition, known)) - 1);',
        'this.#through ??= Math.min(known, -1);',
      ),
    ],
  },
  {
    name: 'an order is appended though it is not swapped in',
    patches: [
      patch(
        ORDER,
        'this.#head = await heads.swap(partition, head, { ...change, namespace, pending });',
        'this.#head = await Promise.resolve({ ...head, ...change, namespace, pending, sequences: new Map([...head.sequences, ...change.sequences]) });',
      ),
    ],
  },
  {
    name: 'a loss that an order states lets nothing be forgotten',
    unit: unitTest(
      'test/cli/sequence/orders.test.ts',
      'a sequence exists though the ledger lost all, and goes on behind its last number',
    ),
    patches: [patch(ORDER, 'through: Math.max(head.through, requestEnd - 1)', 'through: -1')],
  },
];

const RULE = 'src/ledger/sequence-rule.ts';

/** Mistakes about what etcd remembers of the ledger: each shows only where one of them loses what it has. */
export const MEMORY_MUTANTS: readonly Mutant[] = [
  {
    name: 'no comparison with the partition head',
    scenario: 'lost-tail',
    firstSeed: 9,
    patches: [
      patch(
        'src/ledger/ends.ts',
        'for (const head of isSame ? [] : heads) if (await this.#isLost(partition, head, stored.revision)) lost.push(head);',
        'for (const head of isSame ? [] : heads) await this.#isLost(partition, head, stored.revision);',
      ),
    ],
  },
  {
    name: 'a loss of numbers is not stated',
    scenario: 'failover',
    patches: [
      patch(
        RULE,
        'if (shown >= from && (row?.gap ?? 0) === 0) return undefined;',
        'if (shown >= -1) return undefined;',
      ),
    ],
  },
  {
    name: 'a loss is stated behind what is pending',
    scenario: 'failover',
    patches: [
      patch(
        RULE,
        'const from = first === undefined ? (head?.next ?? -1) : firstOf(first);',
        'const from = head?.next ?? (first === undefined ? -1 : firstOf(first));',
      ),
    ],
  },
  {
    name: 'a swap compares nothing',
    scenario: 'two-owners',
    firstSeed: 3,
    patches: [patch('src/ledger/heads.ts', '[{ key: keys.pending, modRevision: head.revision }],', '[],')],
  },
  {
    name: 'of swaps that share a transaction only the first is compared',
    unit: unitTest(
      'test/ledger/shared-transactions.test.ts',
      'one that is outdated is refused, and the others are done',
    ),
    patches: [
      patch(
        'src/ledger/heads.ts',
        'const compares = some.flatMap((one) => one.compares);',
        'const compares = some.slice(0, 1).flatMap((one) => one.compares);',
      ),
    ],
  },
  {
    name: 'numbers are appended though the swap is refused',
    scenario: 'two-owners',
    firstSeed: 3,
    patches: [
      patch(
        'src/ledger/heads.ts',
        'if (!succeeded) return undefined;',
        'if (!succeeded && head.revision < 0n) return undefined;',
      ),
    ],
  },
  {
    name: 'an adopted cluster forgets nothing',
    scenario: 'failover',
    firstSeed: 12,
    patches: [
      patch(
        'src/cli/namespace/adopt-run.ts',
        'const [end, through] = [Math.max(old.end, now + 1), requestEnd - 1];',
        'const [end, through] = [Math.max(old.end, now + 1), Math.min(-1, requestEnd)];',
      ),
    ],
  },
];

/** Bugs in how pairs of topics share a namespace, are kept apart, and outlast partitions that are added by mistake. */
export const GROWTH_MUTANTS: readonly Mutant[] = [
  {
    name: 'a group bound to no request topic',
    scenario: 'growth',
    patches: [
      patch(
        'src/identity/bindings.ts',
        `key: \`\${root}groups/\${groupId}\`,`,
        `key: \`\${root}groups/\${groupId}/\${requests}\`,`,
      ),
    ],
  },
  {
    name: 'a ledger bound to no request topic',
    scenario: 'growth',
    patches: [
      patch(
        'src/identity/bindings.ts',
        `key: \`\${root}ledgers/\${ledger}\`,`,
        `key: \`\${root}ledgers/\${ledger}/\${requests}\`,`,
      ),
    ],
  },
  {
    name: 'one partition count for all request topics',
    scenario: 'growth',
    patches: [
      patch(
        'src/identity/bindings.ts',
        `key: \`\${root}request-topics/\${requests}/partitions\`,`,
        `key: \`\${root}partitions\`,`,
      ),
    ],
  },
  {
    name: 'no worker starts after partitions were added',
    firstSeed: 8,
    patches: [patch('src/worker/topics-watch.ts', 'if (await isCountBound(etcd, bindings)) return report;', '')],
  },
  {
    name: 'added partitions are read by nobody',
    firstSeed: 26,
    patches: [
      patch(
        'src/worker/request-group.ts',
        'beyond.filter((one) => partitions.includes(one % settings.partitions))',
        'beyond.filter((one) => one < 0)',
      ),
    ],
  },
];
