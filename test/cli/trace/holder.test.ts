import { expect, test } from 'vitest';
import { holderText } from '../../../src/cli/trace/trace-run.ts';

const AT = Date.UTC(2026, 5, 2, 16, 5);

test.each([
  ['before it', AT - 1, /192\.0\.2\.1 has held .* since 2026-06-02T16:04:59\.999Z, so it was that worker$/],
  ['in its millisecond', AT, /so it was that worker$/],
  ['after it', AT + 1, /192\.0\.2\.1 has held .* only since 2026-06-02T16:05:00\.001Z: it was a worker before it$/],
])('an ID is of the worker that holds its worker ID only if it took it %s', (_when, grantedAtMs, text) => {
  expect(holderText({ assignedWorkerIp: '192.0.2.1', grantedAtMs }, AT)).toMatch(text);
  expect(holderText(undefined, AT)).toBe('and nobody holds that worker ID now');
});
