/** Who may ask over HTTP, and by which token. One name may have several, so that tokens can be replaced one by one. */
export interface ApiToken {
  readonly name: string;
  readonly token: string;
}

const NAME = /^[a-z0-9-]{1,64}$/;
/** What RFC 6750 allows for a bearer token. */
const TOKEN = /^[A-Za-z0-9._~+/-]+=*$/;
const MIN_LENGTH = 16;
const MAX_LENGTH = 512;
const MAX_TOKENS = 1_000;
/** Metrics call those so who are no holders of a token. */
const TAKEN_NAMES: readonly string[] = ['anonymous', 'mtls'];

/**
 * Lines of name:token; empty ones, and those that begin with #, mean nothing. Throws RangeError for anything else, which
 * names the line and never shows a token.
 */
export function parseApiTokens(text: string): readonly ApiToken[] {
  const owners = new Map<string, string>();
  for (const [at, line] of text.split('\n').entries()) {
    const entry = line.trim();
    if (entry === '' || entry.startsWith('#')) continue;
    const colon = entry.indexOf(':');
    const [name, token] = [entry.slice(0, Math.max(colon, 0)), entry.slice(colon + 1)];
    const refuse = (what: string) => new RangeError(`line ${at + 1} ${what}`);
    if (!NAME.test(name)) throw refuse('must be name:token, with a name of a-z, 0-9 and -');
    if (TAKEN_NAMES.includes(name)) throw refuse(`has the name '${name}', which metrics need for others`);
    if (!TOKEN.test(token)) throw refuse('has a token with characters other than letters, digits and . _ ~ + / - =');
    if (token.length < MIN_LENGTH || token.length > MAX_LENGTH) {
      throw refuse(`must have a token of ${MIN_LENGTH} to ${MAX_LENGTH} characters`);
    }
    if (owners.has(token) && owners.get(token) !== name) throw refuse('has a token of another name');
    owners.set(token, name);
  }
  if (owners.size === 0) throw new RangeError('has no line of name:token');
  if (owners.size > MAX_TOKENS) throw new RangeError(`has more than ${MAX_TOKENS} tokens`);
  return [...owners].map(([token, name]) => ({ name, token }));
}
