import { expect, test } from 'vitest';
import { Findings } from '../../../src/cli/audit/report.ts';
import { Given, outcomeJson, outcomeText, type ReplayOutcome } from '../../../src/cli/replay/outcome.ts';
import { palette } from '../../../src/cli/terminal.ts';

const PLAIN = palette({ terminal: { input: false, output: false, errors: false }, env: {} });

function outcomeOf(fields: Partial<ReplayOutcome> = {}): ReplayOutcome {
  return {
    readAgain: 68,
    forwarded: 1,
    join: { repeated: 27, repeatedWithoutFirst: 0 },
    numbers: 13,
    errors: new Map([
      ['ANSWERED_BEFORE', 29],
      ['EXPIRED', 6],
    ]),
    given: new Given({ ledger: 'id.ledger', plan: [], copies: new Map(), isNew: () => true, most: 10 }),
    dead: 0,
    findings: new Findings(10),
    ...fields,
  };
}

test('the report counts what was repeated, refused again by code, and newly given', () => {
  expect(outcomeText(outcomeOf(), PLAIN).split('\n')).toEqual([
    '68 requests were read again',
    '1 request was forwarded to the partition that decides it',
    '27 replies repeat the batch of an earlier reply',
    '0 replies match the ledger without an earlier reply (new requests included)',
    '13 replies have numbers of sequences (new requests included)',
    'refused again: ANSWERED_BEFORE 29, EXPIRED 6 (new requests included)',
    'nothing was newly given',
    '0 requests became dead letters',
    'no problems found',
    '',
  ]);
  expect(outcomeJson(outcomeOf())).toMatchObject({
    read_again: 68,
    numbers: 13,
    refused_again: { ANSWERED_BEFORE: 29, EXPIRED: 6 },
    newly_given: { requests: 0, ids: 0, numbers: 0, listed: [] },
    findings: [],
  });
});

test('what did not happen is left out of the text, but for refusals', () => {
  const text = outcomeText(outcomeOf({ forwarded: 0, numbers: 0, errors: new Map() }), PLAIN);
  expect(text).toContain('\nrefused again: none\n');
  expect(text).not.toMatch(/forwarded|numbers/);
});
