import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { ClientAuth } from 'oauth4webapi';
import type { Secret } from '../../core/secret.ts';
import { describeError } from '../../errors.ts';
import { KafkaError } from './kafka-error.ts';
import type { Token } from './tokens.ts';

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
