import { describe, expect, test } from 'vitest';
import { judgeSequences } from '../../../src/cli/doctor/doctor-run.ts';
import type { SequenceView } from '../../../src/cli/sequence/sequence-view.ts';

const view = (sequence: string, accord: SequenceView['accord'] = 'agree') => ({ sequence, accord }) as SequenceView;

describe('doctor on sequences', () => {
  test.each([
    ['that agree', [view('a'), view('b')], 'ok', /^2 sequences; the ledger and etcd agree$/],
    ['of which the next request settles one', [view('a'), view('b', 'behind')], 'ok', /1 of them/],
    ['of which the ledger lost numbers', [view('a', 'lost'), view('b')], 'warn', /lost numbers of a;/],
    ['of which one is stopped', [view('a', 'lost'), view('b', 'stopped')], 'fault', /holds of b:/],
  ] as const)('judges those %s', (_, views, state, detail) => {
    expect(judgeSequences(views)).toMatchObject({ state, detail: expect.stringMatching(detail) });
  });

  test('names a few of many', () => {
    const views = Array.from({ length: 30 }, (_, i) => view(`s${i}`, 'stopped'));
    expect(judgeSequences(views).detail).toMatch(/s9 and 20 more/);
  });
});
