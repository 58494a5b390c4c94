import { expect, test } from 'vitest';
import { MAX_TOKEN_CHARS, MAX_TOKENS } from '../../src/codec/api-tokens.ts';
import { MAX_BATCH_COUNT } from '../../src/codec/id-batch.ts';
import { MAX_REQUEST_BYTES } from '../../src/codec/id-request.ts';
import { MAX_POOL } from '../../src/codec/namespace-values.ts';
import { MAX_QUOTAS } from '../../src/codec/quota.ts';
import { MAX_ID_BYTES } from '../../src/codec/request-checks.ts';
import { MAX_TRACE_BYTES } from '../../src/codec/request-headers.ts';
import { MAX_FORMAT_CHARS } from '../../src/codec/sequence-entry.ts';
import { maxSmallCount } from '../../src/core/layout.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { MAX_BODY_BYTES } from '../../src/http/api.ts';
import { MAX_NUMBERS } from '../../src/http/id-routes.ts';
import { MAX_KEY_BYTES } from '../../src/http/parameters.ts';
import { MAX_URL_LENGTH } from '../../src/http/problem.ts';
import { MAX_HEADER_BYTES } from '../../src/http/server.ts';
import { MAX_DECOMPRESSED_BYTES } from '../../src/kafka/records/codecs.ts';
import { MAX_HEADERS } from '../../src/kafka/records/fetched-record.ts';
import { PRICES_US } from '../../src/pipeline/accounts.ts';
import { MAX_RECORD_BYTES } from '../../src/pipeline/intake.ts';
import { readPage } from '../support/docs.ts';

/** The bound that the code has for each row of the table. */
const BOUNDS: Readonly<Record<string, number>> = {
  'IDs in a batch': MAX_BATCH_COUNT,
  "bytes of a request's value": MAX_REQUEST_BYTES,
  "bytes of a request's record, decompressed": MAX_RECORD_BYTES,
  'bytes of a record batch, decompressed': MAX_DECOMPRESSED_BYTES,
  'headers of a record': MAX_HEADERS,
  'bytes of a correlation ID or request ID': MAX_ID_BYTES,
  'bytes of a trace header': MAX_TRACE_BYTES,
  "characters of a sequence's format": MAX_FORMAT_CHARS,
  'worker IDs in a pool': MAX_POOL,
  quotas: MAX_QUOTAS,
  'tokens of the HTTP API': MAX_TOKENS,
  'characters of a token': MAX_TOKEN_CHARS,
  'numbers in a request over HTTP': MAX_NUMBERS,
  'bytes of an `Idempotency-Key`': MAX_KEY_BYTES,
  'characters of a URL': MAX_URL_LENGTH,
  'bytes of a request line with headers': MAX_HEADER_BYTES,
  'bytes of a body': MAX_BODY_BYTES,
};

test('the sizes on the page of limits are those of the code', () => {
  const page = readPage('docs/reference/limits.md');
  const [, sizes = ''] =
    page
      .split('\n## ')
      .find((section) => section.startsWith('Sizes'))
      ?.split('Sizes') ?? [];
  const rows = [...sizes.matchAll(/^\| ([^|]+) \| ([\d,]+) \|/gm)];
  const shown = Object.fromEntries(rows.map(([, what = '', most = '']) => [what, Number(most.replaceAll(',', ''))]));
  expect(shown).toEqual(BOUNDS);
});

test('the prices on the page of security are those of the code', () => {
  const rows = [...readPage('docs/security.md').matchAll(/^\| ([^|]+) \| (\d+) µs[^|]*\|/gm)];
  expect(Object.fromEntries(rows.map(([, work = '', us = '']) => [work, Number(us)]))).toEqual({
    'a request over Kafka': PRICES_US.request,
    'each KiB of its record beyond the first': PRICES_US.kibibyte,
    'each 1,000 IDs that its reply lists, from 1,000 on': PRICES_US.listed,
    'one more reply topic or named partition in a part': PRICES_US.append,
    "a copy for the request's home partition": PRICES_US.forward,
    'a decision read from the ledger: a batch sent again, a `CONFLICT`': PRICES_US.decision,
    'a record that is no request, or of an unknown schema': PRICES_US.request + PRICES_US.letter,
  });
});

test.for(['docs/how-to/client.md', 'docs/how-to/quotas.md', 'docs/operations/runbook.md'])(
  '%s says from how many IDs on a request is large, in two layouts',
  (page) => {
    const text = readPage(page).replaceAll(/\s+/g, ' ');
    const [most, mostSafe] = (['default', 'js-safe'] as const).map((name) => maxSmallCount(presetLayout(name)));
    const layouts = `in layout \`default\`, ${mostSafe} in \`js-safe\``;
    expect(text).toMatch(new RegExp(`about ${most?.toLocaleString('en')} IDs(?: or more)? ${layouts}`));
  },
);
