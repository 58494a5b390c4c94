/** A token that may call the HTTP API, and its owner. A name may have several tokens, so that they can be rotated. */
export interface ApiToken {
  readonly name: string;
  readonly token: string;
  readonly rights: readonly ApiRight[];
}

/**
 * `keyed-decode`: to decode IDs from and to the keyed forms, and so to learn what their key hides.
 * `sequences:invoices/2027`: to take numbers of that sequence; `sequences:invoices/*`: of all whose names begin so.
 */
export type ApiRight = 'keyed-decode' | `sequences:${string}`;

const SEQUENCES = 'sequences:';
const SEQUENCE_RIGHT = /^sequences:(?:[A-Za-z0-9._/-]{1,64}|[A-Za-z0-9._/-]{0,63}\*)$/;

const NAME = /^[a-z0-9-]{1,64}$/;
/** The syntax of a bearer token (RFC 6750). */
const TOKEN = /^[A-Za-z0-9._~+/-]+=*$/;
const MIN_TOKEN_CHARS = 16;
export const MAX_TOKEN_CHARS = 512;
export const MAX_TOKENS = 1_000;
/** The names that metrics use for callers without a token. */
const TAKEN_NAMES: readonly string[] = ['anonymous', 'mtls'];

/**
 * Parses lines of name:token, each with the token's rights after spaces, none by default; empty lines and comments (#)
 * are ignored. Throws RangeError for any other line; the message names the line and never contains a token.
 */
export function parseApiTokens(text: string): readonly ApiToken[] {
  const known = new Map<string, ApiToken>();
  for (const [at, line] of text.split('\n').entries()) {
    const [entry = '', ...words] = line.trim().split(/[ \t]+/);
    if (entry === '' || entry.startsWith('#')) continue;
    const colon = entry.indexOf(':');
    const [name, token] = [entry.slice(0, Math.max(colon, 0)), entry.slice(colon + 1)];
    const refuse = (what: string) => new RangeError(`line ${at + 1} ${what}`);
    if (!NAME.test(name)) throw refuse('must be name:token, with a name of a-z, 0-9 and -');
    if (TAKEN_NAMES.includes(name)) throw refuse(`has the name '${name}', which is reserved for metrics`);
    if (!TOKEN.test(token)) throw refuse('has a token with characters other than letters, digits and . _ ~ + / - =');
    if (token.length < MIN_TOKEN_CHARS || token.length > MAX_TOKEN_CHARS) {
      throw refuse(`must have a token of ${MIN_TOKEN_CHARS} to ${MAX_TOKEN_CHARS} characters`);
    }
    const rights = [...new Set(words)].sort().filter(isRight);
    if (!words.every(isRight))
      throw refuse('has an unknown right after the token: use keyed-decode, sequences:NAME or sequences:PREFIX*');
    const earlier = known.get(token);
    if (earlier !== undefined && earlier.name !== name) throw refuse('has a token of another name');
    if (earlier !== undefined && String(earlier.rights) !== String(rights)) {
      throw refuse('has a token of an earlier line, with other rights');
    }
    known.set(token, { name, token, rights });
  }
  if (known.size === 0) throw new RangeError('has no line of name:token');
  if (known.size > MAX_TOKENS) throw new RangeError(`has more than ${MAX_TOKENS} tokens`);
  return [...known.values()];
}

/** Whether these rights allow to take numbers of a sequence. */
export function mayNumber(rights: readonly ApiRight[], sequence: string): boolean {
  return rights.some((right) => {
    if (!right.startsWith(SEQUENCES)) return false;
    const name = right.slice(SEQUENCES.length);
    return name.endsWith('*') ? sequence.startsWith(name.slice(0, -1)) : sequence === name;
  });
}

function isRight(word: string): word is ApiRight {
  return word === 'keyed-decode' || SEQUENCE_RIGHT.test(word);
}
