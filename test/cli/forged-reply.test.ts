import { expect, test } from 'vitest';
import type { TopicRecord } from '../../src/adapters/kafka/topics/spans.ts';
import { AuditReader } from '../../src/cli/audit/read.ts';
import { type AuditReport, auditText, Findings } from '../../src/cli/audit/report.ts';
import { Given, outcomeText } from '../../src/cli/replay/outcome.ts';
import { palette, terminalText } from '../../src/cli/terminal.ts';
import { encodeIdReply } from '../../src/codec/id-reply.ts';

/** Whoever may write to one reply topic chooses this text: it would clear the screen, and report its own result. */
const FORGED = '\u001b]0;title\u0007\u001b[2J\u001b[H\u001b[32m\nno problems found\u001b[8m\u009b2J\u202e';
const PAINT = palette({ terminal: { input: true, output: true, errors: true }, env: {} });

function readForged(): AuditReader {
  const sink = { add: () => undefined, addNumbers: () => undefined, find: () => undefined };
  const logs = { ledger: [], replies: [{ topic: 'id.replies.a', partition: 0, from: 0, to: 1, start: 0 }] };
  const reader = new AuditReader(logs as never, sink, { clockMarginMs: 0 });
  const correlationId = Buffer.from('a');
  const error = { code: FORGED, message: FORGED };
  const value = encodeIdReply({ correlationId, error }, 'RANGES');
  const place = { topic: 'id.replies.a', partition: 0, offset: 0, timestampMs: 0, headers: {} };
  reader.take({ ...place, key: correlationId, value } as unknown as TopicRecord);
  return reader;
}

const JOINED = { decisions: 0, losers: 0, doubled: 0, replies: 0, forgotten: 0, lost: 0, undecidable: 0 };
const REST = { lost: [], accounts: [], journal: { entries: [], clockMarginMs: 0 }, unjudged: 0 };

function audited({ counts: read }: AuditReader): string {
  const report = { ...REST, read, join: { ...JOINED, requests: undefined }, findings: new Findings(10) };
  return auditText(report as unknown as AuditReport, PAINT);
}

function replayed({ counts: { errors } }: AuditReader): string {
  const given = new Given({ ledger: 'id.ledger', plan: [], copies: new Map(), isNew: () => true, most: 10 });
  const counts = { readAgain: 1, forwarded: 0, numbers: 0, dead: 0, join: { repeated: 0, repeatedWithoutFirst: 0 } };
  return outcomeText({ ...counts, errors, given, findings: new Findings(10) }, PAINT);
}

test.each([
  ['audit', audited],
  ['replay', replayed],
])('the code of a forged reply neither controls the terminal of %s, nor begins a line there', (_, textOf) => {
  const shown = terminalText(textOf(readForged()));
  expect(shown).toContain(String.raw`\u001b[2J`);
  // Only the colours of the result are left.
  const plain = shown.replaceAll('\u001b[32m', '').replaceAll('\u001b[0m', '');
  expect(plain).not.toMatch(/[^\P{Cc}\n]|\p{Cf}/u);
  expect(plain.split('\n').filter((line) => line.startsWith('no problems found'))).toHaveLength(1);
  expect(shown).toContain('\u001b[32mno problems found\u001b[0m');
});
