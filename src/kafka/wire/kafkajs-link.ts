import { describeError, IdallocError } from '../../errors.ts';
import { errorCodeOf, requireSuccess, type SingleApi } from './api.ts';
import { meaningOf } from './error-codes.ts';
import { KafkaError } from './kafka-error.ts';
import type { WireConnection } from './kafkajs-connection.ts';
import {
  type ApiVersion,
  type ApiVersions,
  Decoder,
  definitionOf,
  type Encoder,
  errorClasses,
  lookup,
  type Protocol,
} from './kafkajs-modules.ts';
import { APIS, type ApiName, apiOf, type BrokerLink, type RequestOf, type ResponseOf } from './port.ts';
import { ProduceQueue } from './produce-queue.ts';
import type { ProduceRequest } from './record-apis.ts';

/** The calls over one connection that is open and logged in, in the negotiated versions. */
export class KafkajsLink implements BrokerLink {
  readonly #connection: WireConnection;
  readonly #broker: string;
  readonly #versions: ApiVersions;
  readonly #find: ReturnType<typeof lookup>;
  readonly #produceQueue: ProduceQueue;
  #hasResponded = false;

  constructor(connection: WireConnection, versions: ApiVersions, broker: string) {
    this.#connection = connection;
    this.#broker = broker;
    this.#versions = versions;
    this.#find = lookup(versions);
    const { encodeAll, decodeAll, ...api } = APIS.produce;
    this.#produceQueue = new ProduceQueue((together) => {
      const responses = (decoder: Decoder) => decodeAll(decoder, together);
      return this.#send(
        callOf(api, () => encodeAll(together), responses),
        asIs,
      );
    });
  }

  get ended(): Promise<void> {
    return this.#connection.ended;
  }

  close(): void {
    this.#connection.end(new Error('closed by this side'));
  }

  call<A extends ApiName>(name: A, request: RequestOf<A>): Promise<ResponseOf<A>> {
    const api = apiOf(name);
    if ('encodeAll' in api) return this.#produceQueue.produce(request as ProduceRequest) as Promise<ResponseOf<A>>;
    return this.#call(api, request);
  }

  #call<Q, R>(api: SingleApi<Q, R>, request: Q): Promise<R> {
    if (api.make === undefined) {
      const { name, version } = api;
      // A broker closes the connection on a request that it does not know.
      if ((this.#versions[api.key]?.maxVersion ?? -1) < version)
        return Promise.reject(new KafkaError('UNSUPPORTED_VERSION', `${this.#broker} has no ${name} ${version}`));
      const protocol = callOf(
        api,
        () => api.encode(request),
        (decoder) => api.decode(decoder),
      );
      return this.#send(protocol, asIs);
    }
    const own = api.encode?.(request);
    const protocol = this.#find(api.key, definitionOf(api.name))(api.make(request));
    const encode = own === undefined ? undefined : { request: { ...protocol.request, encode: async () => own } };
    return this.#send({ ...protocol, ...encode }, (decoded) => {
      const { errorCode = 0, clientSideThrottleTime: throttleMs = 0 } = decoded;
      if (api.returns === undefined || errorCodeOf(errorCode) !== api.returns) requireSuccess(errorCode);
      return { throttleMs, ...api.read(decoded) } as R;
    });
  }

  /** `read` converts what was decoded, and throws if the whole response is an error. */
  async #send<T, R>({ request, response }: Call<T>, read: (decoded: T) => R): Promise<R> {
    try {
      if (!this.#connection.isAuthenticated()) await this.#connection.authenticate();
      const encoded = await request.encode();
      const parts = 'buffer' in encoded ? [encoded.buffer] : encoded;
      // Errors stay in what is decoded. kafkajs' own `parse` would throw for the first partition with one.
      const decoded = await response.decode(await this.#connection.request(request, parts));
      this.#hasResponded = true;
      return read(decoded);
    } catch (error) {
      throw this.#errorOf(error);
    }
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

/** A request, in one buffer of kafkajs or in parts, and the decoder of its response. */
interface Call<T> extends Pick<Protocol<T>, 'response'> {
  readonly request: ApiVersion & { encode(): Promise<Encoder | readonly Buffer[]> };
}

/** A request and a response that are encoded and decoded here. */
function callOf<T>(
  { key, version }: { readonly key: number; readonly version: number },
  encode: () => Encoder | readonly Buffer[],
  decode: (decoder: Decoder) => T,
): Call<T> {
  return {
    request: { apiKey: key, apiVersion: version, encode: async () => encode() },
    response: { decode: async (payload) => decode(new Decoder(payload)) },
  };
}

function asIs<T>(response: T): T {
  return response;
}

/** Converts the error of a call to an error of the port. */
function callError(error: unknown, broker: string): KafkaError {
  const options = { cause: error };
  const detail = `${broker}: ${describeError(error)}`;
  if (error instanceof KafkaError) return new KafkaError(error.errorCode, detail, options);
  // The settings hold no login any more.
  if (error instanceof IdallocError) return new KafkaError('LOGIN_REFUSED', detail, options);
  if (error instanceof errorClasses.KafkaJSSASLAuthenticationError)
    return new KafkaError('LOGIN_REFUSED', detail, options);
  if (error instanceof errorClasses.KafkaJSProtocolError) {
    // A call may have to wait for a login.
    return new KafkaError(meaningOf(error.type).refuses === 'login' ? 'LOGIN_REFUSED' : error.type, detail, options);
  }
  if (error instanceof errorClasses.KafkaJSConnectionError) return new KafkaError('CONNECTION_LOST', detail, options);
  if (error instanceof errorClasses.KafkaJSServerDoesNotSupportApiKey) {
    return new KafkaError('UNSUPPORTED_VERSION', detail, options);
  }
  return new KafkaError('MALFORMED_RESPONSE', `${broker}: a response can't be read: ${describeError(error)}`, options);
}
