import { type Mutant, patch } from './mutant.ts';

const DRAFTS = 'src/pipeline/drafts.ts';

/** Mistakes about the numbers of sequences. */
export const SEQUENCE_MUTANTS: readonly Mutant[] = [
  {
    name: 'numbers count wherever they lie',
    firstSeed: 33,
    patches: [
      patch(
        'src/codec/ledger-position.ts',
        'return at === undefined || at === RENEWAL || at === offset;',
        'return true;',
      ),
    ],
  },
  {
    name: 'the requests of an append get the same numbers',
    patches: [
      patch(
        'src/pipeline/numbering.ts',
        '    this.#rows.set(sequence, { ...row, known: { ...row.known, next: next + count * step } });\n',
        '',
      ),
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
    firstSeed: 13,
    patches: [patch(DRAFTS, 'if (firsts.has(offset)) {', "if (entry.kind === 'numbers' || firsts.has(offset)) {")],
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
        'src/core/sequence.ts',
        "return known.next + (count - 1) * known.step > known.max ? 'SEQUENCE_EXHAUSTED' : undefined;",
        'return undefined;',
      ),
    ],
  },
];
