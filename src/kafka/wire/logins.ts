import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { ClientAuth } from 'oauth4webapi';
import type { Secret } from '../../core/secret.ts';
import { describeError } from '../../errors.ts';
import { KafkaError } from './kafka-error.ts';

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

/** Where tokens come from: the client credentials grant of OAuth 2. */
export interface OauthSettings {
  readonly tokenUrl: string;
  readonly clientId: string;
  readonly clientSecret: Secret;
  readonly scope?: string | undefined;
  /** PEM of the CA that signs the endpoint's certificate; by default those of Node. */
  readonly ca?: Secret | undefined;
}

const TIMEOUT_MS = 4_000;
const MAX_RESPONSE_BYTES = 256 * 1024;
/** The lifetime of a token whose endpoint does not return one. */
const DEFAULT_LIFE_S = 60;

/**
 * Fetches a new token. Rejects with LOGIN_REFUSED when the endpoint rejects the client, and with UNREACHABLE when it
 * does not answer as a token endpoint does; the message never contains the secret.
 */
export async function fetchToken(settings: OauthSettings, wallMs: () => number): Promise<Token> {
  const oauth = await import('oauth4webapi');
  const { tokenUrl, clientId, scope } = settings;
  const secret = settings.clientSecret();
  const server = { issuer: tokenUrl, token_endpoint: tokenUrl };
  const parameters = new URLSearchParams(scope === undefined ? {} : { scope });
  const requestedAtMs = wallMs();
  try {
    const response = await oauth.clientCredentialsGrantRequest(
      server,
      { client_id: clientId },
      basicAuth(secret),
      parameters,
      { [oauth.allowInsecureRequests]: true, [oauth.customFetch]: (url, init) => send(url, init, settings.ca) },
    );
    const token = await oauth.processClientCredentialsResponse(server, { client_id: clientId }, response);
    return { value: token.access_token, expiresAtMs: requestedAtMs + (token.expires_in ?? DEFAULT_LIFE_S) * 1_000 };
  } catch (error) {
    const detail = describeError(error).replaceAll(secret, '[secret]');
    if (error instanceof oauth.ResponseBodyError || error instanceof oauth.WWWAuthenticateChallengeError) {
      const why = error instanceof oauth.ResponseBodyError ? error.error : detail;
      throw new KafkaError('LOGIN_REFUSED', `the token endpoint refuses the client '${clientId}' (${why})`);
    }
    const check = 'check KAFKA_OAUTH_TOKEN_URL and KAFKA_OAUTH_CA';
    throw new KafkaError('UNREACHABLE', `no token from ${tokenUrl} (${detail}): ${check}`);
  }
}

/**
 * Client authentication as in RFC 6749, but encodes only what must be: some endpoints don't decode client ID and
 * secret.
 */
function basicAuth(secret: string): ClientAuth {
  const encoded = (text: string) => new URLSearchParams([['', text]]).toString().slice(1);
  return (_server, { client_id: id }, _body, headers) => {
    const login = Buffer.from(`${encoded(id)}:${encoded(secret)}`).toString('base64');
    headers.set('authorization', `Basic ${login}`);
  };
}

const USED = ['access_token', 'token_type', 'expires_in', 'error', 'error_description'];

/**
 * The members of a response that are used, without those that are null. RFC 6749 knows no null, but some endpoints set
 * to it what they don't have, such as a refresh token; nor may an ID token, which is no use here, fail the login.
 */
function whatIsUsed(body: Buffer): string {
  const text = body.toString();
  try {
    const present = JSON.parse(text, (_name, value) => value ?? undefined);
    return JSON.stringify(present, USED) ?? text;
  } catch {
    return text; // which the caller rejects, with the reason
  }
}

interface Init {
  readonly method: string;
  readonly headers: Record<string, string>;
  readonly body?: unknown;
}

/** Node's `fetch` can't be given a CA. Redirects are not followed, so the secret goes to no other server. */
function send(url: string, { method, headers, body }: Init, ca: Secret | undefined): Promise<Response> {
  return new Promise((resolve, reject) => {
    const options = { method, headers, signal: AbortSignal.timeout(TIMEOUT_MS) };
    const isTls = new URL(url).protocol === 'https:';
    const request = isTls ? requestHttps(url, { ...options, ca: ca?.() }) : requestHttp(url, options);
    request.on('error', reject);
    request.on('response', (response) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      response.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > MAX_RESPONSE_BYTES) request.destroy(new Error('the response is too large for a token'));
        else chunks.push(chunk);
      });
      response.on('error', reject);
      response.on('end', () => {
        const headers = Object.entries(response.headers).flatMap(([name, value]) =>
          value === undefined ? [] : [[name, String(value)] as [string, string]],
        );
        try {
          resolve(new Response(whatIsUsed(Buffer.concat(chunks)), { status: response.statusCode ?? 500, headers }));
        } catch (error) {
          reject(error); // a status that has no body, such as 204
        }
      });
    });
    request.end(body === undefined ? undefined : String(body));
  });
}

/** Signs a login to Amazon MSK with the AWS credentials of the environment. An optional dependency: see `PACKAGE`. */
type MskSigner = Pick<typeof import('aws-msk-iam-sasl-signer-js'), 'generateAuthToken'>;

/**
 * It brings 75 packages that are needed for MSK only, so users of MSK install it themselves. As a variable, with marks
 * at its import, bundlers leave the import alone.
 */
const PACKAGE = 'aws-msk-iam-sasl-signer-js';
const loadSigner = async (): Promise<MskSigner> => await import(/* webpackIgnore: true */ /* @vite-ignore */ PACKAGE);

/** A token for the region, which is a signed request. Rejects with LOGIN_REFUSED if the package is not installed. */
export async function signMskToken(region: string, load = loadSigner): Promise<Token> {
  const signer = await load().catch((error: unknown) => {
    const message = `KAFKA_SASL_MECHANISM=aws-msk-iam needs a package that is not installed: npm install ${PACKAGE}, or build the image with MSK=1`;
    throw new KafkaError('LOGIN_REFUSED', message, { cause: error });
  });
  try {
    const { token, expiryTime } = await signer.generateAuthToken({ region });
    return { value: token, expiresAtMs: expiryTime };
  } catch (error) {
    const message = `the login to MSK could not be signed (${describeError(error)}): check KAFKA_AWS_REGION and the AWS credentials`;
    throw new KafkaError('UNREACHABLE', message, { cause: error });
  }
}
