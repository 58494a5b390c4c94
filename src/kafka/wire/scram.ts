import scram256 from 'kafkajs/src/broker/saslAuthenticator/scram256.js';
import scram512 from 'kafkajs/src/broker/saslAuthenticator/scram512.js';
import type { ConnectionConfig } from './connection-config.ts';
import { typed } from './kafkajs-modules.ts';

type Sasl = NonNullable<ConnectionConfig['sasl']>;

interface Exchange {
  /** Sends a message of the login; resolves with the fields of the broker's response. */
  readonly saslAuthenticate: (message: object) => Promise<{ readonly i?: string } | undefined>;
}

type Provider = (exchange: Exchange) => { authenticate(): Promise<void> };

const PROVIDERS: Readonly<Record<string, (sasl: Sasl) => Provider>> = {
  'SCRAM-SHA-256': typed<(sasl: Sasl) => Provider>(scram256),
  'SCRAM-SHA-512': typed<(sasl: Sasl) => Provider>(scram512),
};

/** Kafka's own maximum is 16,384. This many take a tenth of a second of one thread; a broker could demand 2^31. */
const MAX_ITERATIONS = 100_000;

/**
 * A copy of the login, which kafkajs may change. A SCRAM login fails if the broker demands more than MAX_ITERATIONS
 * rounds of hashing, before they are computed: whoever answers in a broker's place could occupy all of Node's threads
 * with them.
 */
export function boundedLogin(sasl: Sasl): Sasl {
  const create = PROVIDERS[sasl.mechanism.toUpperCase()];
  if (create === undefined || 'authenticationProvider' in sasl) return { ...sasl };
  const authenticationProvider: Provider = ({ saslAuthenticate, ...more }) =>
    create(sasl)({
      ...more,
      saslAuthenticate: async (message) => requireFew(await saslAuthenticate(message)),
    });
  return { ...sasl, authenticationProvider } as Sasl;
}

function requireFew<T extends { readonly i?: string } | undefined>(response: T): T {
  const iterations = Number.parseInt(response?.i ?? '0', 10);
  if (iterations <= MAX_ITERATIONS) return response;
  throw new Error(
    `the broker demands ${iterations} iterations, at most ${MAX_ITERATIONS} are allowed: set the user's password again with fewer, and check that this is your broker`,
  );
}
