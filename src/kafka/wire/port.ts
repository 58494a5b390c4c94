import type { HostPort } from '../../core/host-port.ts';
import type { CombinedApi, SingleApi } from './api.ts';
import { GROUP_APIS } from './group-apis.ts';
import { RECORD_APIS } from './record-apis.ts';
import { TOPIC_APIS } from './topic-apis.ts';

/**
 * The interface to a Kafka client library: a connection to one broker, with the APIs that are used here.
 * No retries, no deadlines, no topology: `cluster.ts` adds those, over any library and over the simulated brokers of
 * the tests.
 */

/**
 * The APIs of Kafka that are used, by Kafka's names. The types of requests and responses, the calls of a connection,
 * the versions that a broker must have and the rights that are watched follow from it.
 */
export const APIS = { ...RECORD_APIS, ...TOPIC_APIS, ...GROUP_APIS };

export type ApiName = keyof typeof APIS;
type TypesOf<A extends ApiName> = NonNullable<(typeof APIS)[A]['types']>;
export type RequestOf<A extends ApiName> = TypesOf<A>['request'];
export type ResponseOf<A extends ApiName> = TypesOf<A>['response'];

type AnyApi<A extends ApiName> = SingleApi<RequestOf<A>, ResponseOf<A>> | CombinedApi<RequestOf<A>, ResponseOf<A>>;

/** The entry of an API of which only the name is known. */
export function apiOf<A extends ApiName>(name: A): AnyApi<A> {
  const apis: { readonly [N in ApiName]: AnyApi<N> } = APIS;
  return apis[name];
}

export type BrokerAddress = HostPort;

/** Opens connections. */
export interface Dialer {
  /**
   * Connects, negotiates versions and logs in. Rejects with UNREACHABLE or LOGIN_REFUSED, or with CLOSED when the
   * signal aborts, leaving no socket behind.
   */
  dial(address: BrokerAddress, signal: AbortSignal): Promise<BrokerLink>;
}

/** One connection to one broker. */
export interface BrokerLink {
  /** Resolves when the connection has ended, whichever side ended it; pending calls have been rejected by then. */
  readonly ended: Promise<void>;
  /** Closes it immediately; pending calls are rejected with CONNECTION_LOST. */
  close(): void;
  /**
   * Calls one of Kafka's APIs. Rejects with a KafkaError when the connection fails (`CONNECTION_LOST`), when the
   * response can't be decoded (`MALFORMED_RESPONSE`), or with Kafka's name of the error if the whole response is one.
   * Errors of a single topic or partition are in the response as `errorCode`. Offsets are integers below 2^53; an
   * implementation rejects larger ones as MALFORMED_RESPONSE. Calls may be pipelined; a broker serves the calls of one
   * connection in order.
   */
  call<A extends ApiName>(api: A, request: RequestOf<A>): Promise<ResponseOf<A>>;
}
