import type { CombinedApi, SingleApi } from './api.ts';
import { GROUP_APIS } from './group-apis.ts';
import { RECORD_APIS } from './record-apis.ts';
import { TOPIC_APIS } from './topic-apis.ts';

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
