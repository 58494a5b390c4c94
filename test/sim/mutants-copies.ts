import { type Mutant, patch } from './mutant.ts';

/** Bugs in reading decisions back from the ledger, renewing them, and keeping copies of the index. */
export const COPY_MUTANTS: readonly Mutant[] = [
  {
    name: 'an entry that is gone counts as unknown',
    scenario: 'retention',
    patches: [
      patch('src/ledger/decided.ts', 'return before === NOWHERE ? undefined : FORGOTTEN;', 'return undefined;'),
    ],
  },
  {
    name: 'an entry of another hash taken for a collision',
    scenario: 'lost-tail',
    firstSeed: 2626,
    patches: [patch('src/ledger/decided.ts', '      requireIndexed(deps, record);\n', '')],
  },
  {
    name: 'the first of several keys with one hash taken',
    patches: [patch('src/ledger/decided.ts', 'record.key?.equals(key) !== true', 'record.key === null')],
  },
  {
    name: 'a renewal written for the first request',
    scenario: 'retention',
    firstSeed: 116,
    patches: [
      patch(
        'src/pipeline/drafts.ts',
        'const again = { requestOffset: record.offset, ...view };',
        'const again = view;',
      ),
      patch(
        'src/pipeline/drafts.ts',
        'function renewalOf({ key, record }: Accepted',
        'function renewalOf({ key }: Accepted',
      ),
    ],
  },
  {
    name: 'decisions never renewed',
    patches: [
      patch(
        'src/pipeline/age.ts',
        'return accepted.record.timestampMs - decided.newestMs >= renewAfterMs;',
        'return renewAfterMs < 0;',
      ),
    ],
  },
  {
    name: 'a loser keeps a decision young',
    scenario: 'retention',
    firstSeed: 139,
    patches: [
      patch('src/ledger/decided.ts', '        newestMs = appendedAtMs;\n', ''),
      patch(
        'src/ledger/decided.ts',
        '      if (hasDecision(entry, before, origin)) {',
        '      newestMs = appendedAtMs;\n      if (hasDecision(entry, before, origin)) {',
      ),
    ],
  },
  {
    name: 'a dropped copy counts as present',
    patches: [patch('src/ledger/partition.ts', "  drop(): void {\n    this.#mode = 'absent';\n", '  drop(): void {\n')],
  },
  {
    name: 'an unrecognised copy reported to the group',
    scenario: 'lost-tail',
    patches: [patch('src/worker/request-service.ts', '.filter(({ isRecognised }) => isRecognised)', '')],
  },
  {
    name: 'decisions by an incomplete copy',
    patches: [
      patch(
        'src/ledger/partition.ts',
        'this.#position.isRecognised && end >= this.#target) return undefined;',
        'this.#position.isRecognised) return undefined;',
      ),
    ],
  },
  {
    name: 'a partition assigned to a member without a copy of it',
    scenario: 'take-over',
    patches: [patch('src/kafka/loops/planner.ts', 'able.filter((one) => lags.isCaughtUp(one, partition))', 'able')],
  },
];
