/** The token of an OAUTHBEARER login. */
export interface Token {
  readonly value: string;
  /** By the wall clock. */
  readonly expiresAtMs: number;
}

/** A session ends with its token, and is renewed up to 10 s before: a token must be valid beyond that. */
const RENEW_BEFORE_MS = 30_000;
/** A short-lived token is renewed after this share of its life. */
const RENEW_SHARE = 0.6;
/** A token that expires sooner is too old for a login. */
const USABLE_MS = 2_000;

/**
 * Keeps a token until shortly before it expires; concurrent logins share one fetch. While no new token can be fetched
 * the present one is used until it expires.
 */
export class Tokens {
  readonly #fetch: () => Promise<Token>;
  readonly #wallMs: () => number;
  #kept: { readonly token: Token; readonly staleAtMs: number } | undefined;
  #fetching: Promise<Token> | undefined;

  constructor(fetch: () => Promise<Token>, wallMs: () => number) {
    this.#fetch = fetch;
    this.#wallMs = wallMs;
  }

  async current(): Promise<Token> {
    const kept = this.#kept;
    if (kept !== undefined && this.#wallMs() < kept.staleAtMs) return kept.token;
    this.#fetching ??= this.#renew().finally(() => {
      this.#fetching = undefined;
    });
    try {
      return await this.#fetching;
    } catch (error) {
      if (kept !== undefined && this.#wallMs() < kept.token.expiresAtMs - USABLE_MS) return kept.token;
      throw error;
    }
  }

  async #renew(): Promise<Token> {
    const token = await this.#fetch();
    const lifeMs = token.expiresAtMs - this.#wallMs();
    this.#kept = { token, staleAtMs: token.expiresAtMs - Math.min(RENEW_BEFORE_MS, lifeMs * RENEW_SHARE) };
    return token;
  }
}
