import { expect, test } from 'vitest';
import { auditText, Findings, unjudgedIn } from '../../../src/cli/audit/report.ts';
import type { Unjudged } from '../../../src/cli/audit/requests.ts';
import { palette } from '../../../src/cli/terminal.ts';

const NOTHING = { losers: 0, doubled: 0, forgotten: 0, lost: 0, undecidable: 0, repeated: 0, repeatedWithoutFirst: 0 };
const PLAIN = palette({ terminal: { input: false, output: false, errors: false }, env: {} });

/** What is found of two requests, of which one can't be judged for this reason. */
function audited(reason: Unjudged, findings = new Findings(10)) {
  const counts = { requests: 2, answered: 1, refused: 0, deadLetters: 0, waiting: 0, unjudged: new Map([[reason, 1]]) };
  const join = { ...NOTHING, decisions: 1, replies: 1, requests: counts };
  const kinds = { requests: 2, entries: 1, markers: 0, ofSequences: 0, replies: 1, unknownLayouts: 0, ids: 1n };
  const read = { ...kinds, errors: new Map(), errorsAgain: new Map() };
  const journal = { entries: [], clockMarginMs: 0 };
  const text = (unjudged: number) =>
    auditText({ read, join, lost: [], accounts: [], journal, findings, unjudged }, PLAIN);
  return { join, text };
}

test("an audit does not end with 'no problems found' if requests without an answer can't be judged", () => {
  const { join, text } = audited('letters_deleted');
  const unjudged = unjudgedIn(join, {});
  expect(unjudged).toBe(1);
  expect(text(unjudged)).toMatch(/2 requests, 1 answered[\s\S]*\n1 request can't be judged; --from [^\n]*\n$/);
  expect(text(0)).toMatch(/\nno problems found\n$/);
});

test('whoever names reply topics does not ask about the requests of others', () => {
  expect(unjudgedIn(audited('reply_topic_not_read').join, {})).toBe(1);
  expect(unjudgedIn(audited('reply_topic_not_read').join, { replyTopic: ['id.replies.orders'] })).toBe(0);
  expect(unjudgedIn(audited('replies_deleted').join, { replyTopic: ['id.replies.orders'] })).toBe(1);
});

test('findings come before what could not be judged', () => {
  const findings = new Findings(10);
  findings.add({ code: 'GAP', message: 'a gap', locations: [] });
  expect(audited('replies_deleted', findings).text(1)).toMatch(/\n1 findings\n$/);
});
