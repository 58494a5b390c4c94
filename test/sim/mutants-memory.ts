import { type Mutant, patch } from './mutant.ts';

const RULE = 'src/ledger/sequence-rule.ts';

/** Mistakes about what etcd remembers of the ledger: each shows only where one of them loses what it has. */
export const MEMORY_MUTANTS: readonly Mutant[] = [
  {
    name: 'no comparison with the partition head',
    scenario: 'lost-tail',
    firstSeed: 5,
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
    scenario: 'two-owners',
    firstSeed: 80,
    patches: [
      patch(
        'src/ledger/shared-transactions.ts',
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
        'const [end, through] = [Math.max(oldEnd, now + 1), requestEnd - 1];',
        'const [end, through] = [Math.max(oldEnd, now + 1), Math.min(-1, requestEnd)];',
      ),
    ],
  },
  {
    name: 'what a copy showed before it was restored counts as shown',
    scenario: 'each-loses',
    patches: [
      patch(
        'src/pipeline/numbers.ts',
        'shown: isSame && before.life === life ? before.shown : new Map(),',
        'shown: isSame ? before.shown : new Map(),',
      ),
    ],
  },
];
