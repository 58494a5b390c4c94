import { KafkaError } from './kafka-error.ts';
import type { WireConnection } from './kafkajs-connection.ts';
import { callError } from './kafkajs-errors.ts';
import type { ApiVersions, Protocol } from './kafkajs-modules.ts';
import { type Definition, lookup, type Make } from './kafkajs-requests.ts';

/** Requests on one connection, in the negotiated versions. */
export class Calls {
  readonly #connection: WireConnection;
  readonly #broker: string;
  readonly #find: <O, T>(apiKey: number, definition: Definition<O, T>) => Make<O, T>;
  #hasResponded = false;

  constructor(connection: WireConnection, versions: ApiVersions, broker: string) {
    this.#connection = connection;
    this.#broker = broker;
    this.#find = lookup(versions);
  }

  /** One of kafkajs' requests, with its decoder. */
  protocol<O, T>(apiKey: number, definition: Definition<O, T>, options: O): Protocol<T> {
    return this.#find(apiKey, definition)(options);
  }

  /** Sends a request. `read` converts kafkajs' decoded response, and throws if the whole response is an error. */
  request<O, T, R>(apiKey: number, definition: Definition<O, T>, options: O, read: (decoded: T) => R): Promise<R> {
    return this.send(this.protocol(apiKey, definition, options), read);
  }

  async send<T, R>(protocol: Protocol<T>, read: (decoded: T) => R): Promise<R> {
    try {
      return read(await this.#send(protocol));
    } catch (error) {
      throw this.#errorOf(error);
    }
  }

  async #send<T>({ request, response }: Protocol<T>): Promise<T> {
    // kafkajs' own parse would throw for the first partition with an error; here errors stay in the responses
    const asDecoded = { decode: response.decode, parse: async (decoded: T) => decoded };
    const decoded = await this.#connection.send({ request, response: asDecoded, logResponseError: false });
    this.#hasResponded = true;
    return decoded;
  }

  #errorOf(error: unknown): KafkaError {
    const failure = callError(error, this.#broker);
    if (failure.errorCode === 'LOGIN_REFUSED') this.#connection.end(failure);
    if (failure.errorCode !== 'CONNECTION_LOST' || this.#hasResponded || this.#connection.sasl) return failure;
    return new KafkaError('CONNECTION_LOST', `${failure.message}: does this listener require a login?`, {
      cause: error,
    });
  }
}
