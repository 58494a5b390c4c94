import { request as requestHttp } from 'node:http';
import { request as requestHttps } from 'node:https';
import type { ClientAuth } from 'oauth4webapi';
import type { Secret } from '../../core/secret.ts';
import { describeError } from '../../errors.ts';
import { KafkaFault } from './fault.ts';
import type { Token } from './tokens.ts';

/** Where tokens come from: OAuth 2's client credentials. */
export interface OauthSettings {
  readonly tokenUrl: string;
  readonly clientId: string;
  readonly clientSecret: Secret;
  readonly scope?: string;
  /** PEM of those who sign the endpoint's certificate; without it, those that Node brings. */
  readonly ca?: Secret;
}

const TIMEOUT_MS = 4_000;
const MAX_ANSWER_BYTES = 256 * 1024;
/** Of a token whose endpoint does not say how long it lives. */
const DEFAULT_LIFE_S = 60;

/**
 * A new token. Rejects with LOGIN_REFUSED when the endpoint refuses the client, and with UNREACHABLE when it does not
 * answer as such an endpoint does; the message never has the secret.
 */
export async function fetchToken(settings: OauthSettings, wallMs: () => number): Promise<Token> {
  const oauth = await import('oauth4webapi');
  const { tokenUrl, clientId, scope } = settings;
  const secret = settings.clientSecret();
  const server = { issuer: tokenUrl, token_endpoint: tokenUrl };
  const parameters = new URLSearchParams(scope === undefined ? {} : { scope });
  const askedMs = wallMs();
  try {
    const response = await oauth.clientCredentialsGrantRequest(
      server,
      { client_id: clientId },
      basicAuth(secret),
      parameters,
      { [oauth.allowInsecureRequests]: true, [oauth.customFetch]: (url, init) => send(url, init, settings.ca) },
    );
    const answer = await oauth.processClientCredentialsResponse(server, { client_id: clientId }, response);
    return { value: answer.access_token, expiresAtMs: askedMs + (answer.expires_in ?? DEFAULT_LIFE_S) * 1_000 };
  } catch (error) {
    const said = describeError(error).replaceAll(secret, '[secret]');
    if (error instanceof oauth.ResponseBodyError || error instanceof oauth.WWWAuthenticateChallengeError) {
      const why = error instanceof oauth.ResponseBodyError ? error.error : said;
      throw new KafkaFault('LOGIN_REFUSED', `the token endpoint refuses the client '${clientId}' (${why})`);
    }
    const check = 'check KAFKA_OAUTH_TOKEN_URL and KAFKA_OAUTH_CA';
    throw new KafkaFault('UNREACHABLE', `no token from ${tokenUrl} (${said}): ${check}`);
  }
}

/** As RFC 6749 has it, but nothing is encoded that need not be: some endpoints take client and secret as they come. */
function basicAuth(secret: string): ClientAuth {
  const encoded = (text: string) => new URLSearchParams([['', text]]).toString().slice(1);
  return (_server, { client_id: id }, _body, headers) => {
    const login = Buffer.from(`${encoded(id)}:${encoded(secret)}`).toString('base64');
    headers.set('authorization', `Basic ${login}`);
  };
}

interface Init {
  readonly method: string;
  readonly headers: Record<string, string>;
  readonly body?: unknown;
}

/** `fetch` of Node takes no authority of its own. Redirections are answers like others: no secret goes elsewhere. */
function send(url: string, { method, headers, body }: Init, ca: Secret | undefined): Promise<Response> {
  return new Promise((resolve, reject) => {
    const options = { method, headers, signal: AbortSignal.timeout(TIMEOUT_MS) };
    const isTls = new URL(url).protocol === 'https:';
    const request = isTls
      ? requestHttps(url, { ...options, ...(ca === undefined ? {} : { ca: ca() }) })
      : requestHttp(url, options);
    request.on('error', reject);
    request.on('response', (answer) => {
      const chunks: Buffer[] = [];
      let bytes = 0;
      answer.on('data', (chunk: Buffer) => {
        bytes += chunk.length;
        if (bytes > MAX_ANSWER_BYTES) request.destroy(new Error('the answer is too long for a token'));
        else chunks.push(chunk);
      });
      answer.on('error', reject);
      answer.on('end', () => {
        const given = Object.entries(answer.headers).flatMap(([name, value]) =>
          value === undefined ? [] : [[name, String(value)] as [string, string]],
        );
        resolve(new Response(Buffer.concat(chunks), { status: answer.statusCode ?? 500, headers: given }));
      });
    });
    request.end(body === undefined ? undefined : String(body));
  });
}
