import { type Mutant, patch } from './mutant.ts';

/** Bugs in noticing that a log has lost its tail, and in reading what is new at the offsets that became free. */
export const TAIL_MUTANTS: readonly Mutant[] = [
  {
    name: 'requests at reused offsets dropped as answered',
    scenario: 'lost-requests',
    firstSeed: 70,
    patches: [
      patch(
        'src/worker/request-group.ts',
        '    this.#end(partition);\n    this.#serve(partition, { next: from, small: from }, { next: position, small: position });\n',
        '',
      ),
    ],
  },
  {
    name: 'reading continues at the end after a lost request tail',
    scenario: 'lost-requests',
    firstSeed: 104,
    patches: [
      patch(
        'src/worker/lost-requests.ts',
        'Math.min(answered, end, found === -1 ? end : found)',
        'Math.min(end, found === answered ? end : end)',
      ),
    ],
  },
  {
    name: 'the offset after a lost request tail is not committed',
    scenario: 'lost-requests',
    firstSeed: 120,
    patches: [patch('src/worker/request-group.ts', ', { next: position, small: position });', ');')],
  },
  {
    name: 'the last record that was read is not committed',
    scenario: 'lost-requests',
    firstSeed: 167,
    patches: [
      patch(
        'src/worker/request-partition.ts',
        'encodeMetadata({ ...position, last: this.#lost.last })',
        'encodeMetadata(position)',
      ),
    ],
  },
  {
    name: 'a marker that is not read back',
    firstSeed: 911_556,
    patches: [
      patch('src/ledger/ledger.ts', '    await this.#of(partition).readBack(baseOffset + entries.length);\n', ''),
    ],
  },
  {
    name: 'a marker refused at the end of the requests',
    patches: [
      patch(
        'src/ledger/ends.ts',
        'if (known < Math.max(1, requestEnd)) return;',
        'if (known + 1 < Math.max(1, requestEnd)) return;',
      ),
    ],
  },
  {
    name: 'the time of the first sending is ignored',
    firstSeed: 22,
    patches: [
      patch(
        'src/codec/request-headers.ts',
        'return origin?.appendedAtMs ?? firstSentMs;',
        'return origin?.appendedAtMs;',
      ),
    ],
  },
  {
    name: 'each request that is sent again is forgotten',
    patches: [
      patch(
        'src/pipeline/age.ts',
        'return sinceMs === 0 || isYounger ? undefined',
        'return sinceMs === 1 && isYounger ? undefined',
      ),
    ],
  },
  {
    name: 'no comparison after reading was interrupted',
    scenario: 'lost-requests',
    firstSeed: 1_140,
    patches: [
      patch(
        'src/adapters/kafka/ledger-reading.ts',
        'if (!this.#isOver && copy.doubt()) this.restart();',
        'if (this.#isOver && copy.doubt()) this.restart();',
      ),
    ],
  },
];
