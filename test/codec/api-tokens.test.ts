import { expect, test } from 'vitest';
import { mayNumber, parseApiTokens } from '../../src/codec/api-tokens.ts';

const OLD = 'old-token-of-orders';
const NEW = 'new.token_of~orders+/-==';

test('one name may have several tokens; empty lines and comments are ignored', () => {
  const text = `# who may ask\r\n\n orders:${OLD}\r\norders:${NEW}\nbilling-2:${'b'.repeat(16)}\n`;
  expect(parseApiTokens(text)).toEqual([
    { name: 'orders', token: OLD, rights: [] },
    { name: 'orders', token: NEW, rights: [] },
    { name: 'billing-2', token: 'b'.repeat(16), rights: [] },
  ]);
});

test('a token has the rights that follow it on its line, and no others', () => {
  const text = `orders:${OLD}  keyed-decode \norders:${NEW}\norders:${OLD} keyed-decode`;
  expect(parseApiTokens(text)).toEqual([
    { name: 'orders', token: OLD, rights: ['keyed-decode'] },
    { name: 'orders', token: NEW, rights: [] },
  ]);
});

test('a right to sequences is for one name, or for all names that begin so', () => {
  const [{ rights = [] } = {}] = parseApiTokens(`orders:${OLD} sequences:tickets sequences:invoices/*`);
  expect(rights).toEqual(['sequences:invoices/*', 'sequences:tickets']);
  const names = ['tickets', 'tickets/2', 'invoices/', 'invoices/2027', 'invoices', ''];
  expect(names.map((name) => mayNumber(rights, name))).toEqual([true, false, true, true, false, false]);
  expect([mayNumber([], 'tickets'), mayNumber(['keyed-decode'], 'tickets')]).toEqual([false, false]);
  expect(mayNumber(['sequences:*'], 'anything')).toBe(true);
});

test.each(['sequences:', 'sequences:a*b', 'sequences:a b', `sequences:${'x'.repeat(65)}`])(
  'what no sequence can be named is no right: %s',
  (right) => expect(() => parseApiTokens(`orders:${OLD} ${right}`)).toThrow('unknown right'),
);

test.each([
  ['no token at all', '# nobody\n', 'no line'],
  ['a line without a name', OLD, 'line 1 must be name:token'],
  ['an empty name', `:${OLD}`, 'line 1 must be name:token'],
  ['a name in capitals', `a:${OLD}\nOrders:${NEW}`, 'line 2 must be name:token'],
  ['a name that metrics need', `mtls:${OLD}`, "line 1 has the name 'mtls'"],
  ['a short token', 'orders:fifteen-letters', 'line 1 must have a token of 16'],
  ['a long token', `orders:${'x'.repeat(513)}`, 'line 1 must have a token of 16'],
  ['a token with a space', `orders:${OLD} ${NEW}`, 'line 1 has an unknown right'],
  ['an unknown right', `orders:${OLD} Keyed-decode`, 'line 1 has an unknown right after the token: use keyed-decode'],
  [
    'one token with and without a right',
    `a:${OLD}\na:${OLD} keyed-decode`,
    'line 2 has a token of an earlier line, with',
  ],
  ['a token with other characters', `orders:${OLD}%`, 'line 1 has a token with characters'],
  ['one token for two names', `orders:${OLD}\nbilling:${OLD}`, 'line 2 has a token of another name'],
  ['too many tokens', Array.from({ length: 1_001 }, (_, i) => `a:${OLD}${i}`).join('\n'), 'more than'],
])('%s is rejected, and the message does not contain the token', (_, text, message) => {
  expect(() => parseApiTokens(text)).toThrow(new RegExp(`^(?!.*(${OLD}|fifteen|xxx)).*${message}`));
});
