import { createSign, generateKeyPairSync } from 'node:crypto';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';

const KEY_ID = 'test-key';

export interface TokenServerOptions {
  readonly clientId: string;
  readonly clientSecret: string;
  readonly audience: string;
  readonly lifeS: number;
}

/** An OAuth 2 token endpoint for client credentials, and the keys by which a broker checks its tokens. */
export class TokenServer implements AsyncDisposable {
  readonly tokenUrl: string;
  readonly keysUrl: string;
  /** The number of requests for tokens. */
  asked = 0;
  /** Whether it refuses the client, as if that was deleted. */
  refuses = false;
  readonly #options: TokenServerOptions;
  readonly #server: Server;
  readonly #keys = generateKeyPairSync('rsa', { modulusLength: 2048 });

  private constructor(server: Server, options: TokenServerOptions) {
    const { port } = server.address() as AddressInfo;
    this.#server = server;
    this.#options = options;
    this.tokenUrl = `http://127.0.0.1:${port}/token`;
    this.keysUrl = `http://127.0.0.1:${port}/keys`;
  }

  static async start(options: TokenServerOptions): Promise<TokenServer> {
    let tokens: TokenServer | undefined;
    const server = createServer((request, response) => {
      const [status, body] = tokens?.answer(request.url ?? '', request.headers.authorization ?? '') ?? [503, {}];
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    tokens = new TokenServer(server, options);
    return tokens;
  }

  answer(path: string, authorization: string): [number, object] {
    if (path === '/keys') {
      const key = this.#keys.publicKey.export({ format: 'jwk' });
      return [200, { keys: [{ ...key, kid: KEY_ID, alg: 'RS256', use: 'sig' }] }];
    }
    this.asked += 1;
    const { clientId, clientSecret, lifeS } = this.#options;
    const login = Buffer.from(authorization.replace(/^Basic /, ''), 'base64').toString();
    const expected = [clientId, clientSecret].map(encodeURIComponent).join(':');
    if (this.refuses || login !== expected) return [401, { error: 'invalid_client' }];
    return [200, { access_token: this.#token(), token_type: 'Bearer', expires_in: lifeS }];
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => this.#server.close(resolve));
  }

  #token(): string {
    const { clientId, audience, lifeS } = this.#options;
    const nowS = Math.floor(Date.now() / 1_000);
    const part = (of: object) => Buffer.from(JSON.stringify(of)).toString('base64url');
    const claims = { sub: clientId, aud: audience, iss: 'test', iat: nowS, exp: nowS + lifeS, scope: 'kafka' };
    const signed = `${part({ alg: 'RS256', kid: KEY_ID, typ: 'JWT' })}.${part(claims)}`;
    const signature = createSign('RSA-SHA256').update(signed).sign(this.#keys.privateKey).toString('base64url');
    return `${signed}.${signature}`;
  }
}
