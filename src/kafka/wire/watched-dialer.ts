import type { ShownRight } from './api.ts';
import { meaningOf, type RefusalCode } from './error-codes.ts';
import type { JoinGroupRequest } from './group-apis.ts';
import { KafkaError, type KafkaErrorCode, kafkaErrorCode } from './kafka-error.ts';
import {
  type ApiName,
  apiOf,
  type BrokerAddress,
  type BrokerLink,
  type Dialer,
  type RequestOf,
  type ResponseOf,
} from './port.ts';

/** A right that a user may or may not have, as Kafka's authorizer names it. */
export interface UsedRight {
  readonly on: 'topic' | 'group';
  readonly name: string;
  readonly operation: ShownRight<never, never>['operation'];
}

/** Observes how brokers treat this client: which logins they accept, and what they authorize. */
export interface Watch {
  /** A broker has accepted a login. Responses on open connections say nothing about the next login. */
  onLogin(address: BrokerAddress): void;
  /** A dial failed, or a broker ended the session of a connection. */
  onDialError(address: BrokerAddress, error: KafkaError): void;
  /** `errorCode`: the authorizer's; undefined when a broker executed a call that needs the right. */
  onRight(right: UsedRight, errorCode: KafkaErrorCode | undefined): void;
  /** A coordinator refuses a member for something other than a right; undefined when it accepts it. */
  onJoin(member: Pick<JoinGroupRequest, 'groupId' | 'sessionTimeoutMs'>, refusal: JoinRefusal | undefined): void;
}

/** What lasts until the configuration or the group changes, such as a foreign consumer in the group. */
export type JoinRefusal = RefusalCode<'group'>;

/** Wraps a dialer so that `watch` observes it. Responses and errors are passed through unchanged. */
export function watchedDialer(dialer: Dialer, watch: Watch): Dialer {
  return {
    async dial(address, signal) {
      try {
        const link = await dialer.dial(address, signal);
        watch.onLogin(address);
        return new WatchedLink(link, address, watch);
      } catch (error) {
        if (error instanceof KafkaError) watch.onDialError(address, error);
        throw error;
      }
    },
  };
}

class WatchedLink implements BrokerLink {
  readonly #link: BrokerLink;
  readonly #address: BrokerAddress;
  readonly #watch: Watch;

  constructor(link: BrokerLink, address: BrokerAddress, watch: Watch) {
    this.#link = link;
    this.#address = address;
    this.#watch = watch;
  }

  get ended(): Promise<void> {
    return this.#link.ended;
  }

  close(): void {
    this.#link.close();
  }

  async call<A extends ApiName>(name: A, request: RequestOf<A>): Promise<ResponseOf<A>> {
    const { right } = apiOf(name);
    try {
      const response = await this.#link.call(name, request);
      const { errorCode } = response as { readonly errorCode?: KafkaErrorCode };
      if (right !== undefined && 'topics' in right) {
        for (const topic of right.topics(request, response)) this.#report('topic', topic.name, right, topic.errorCode);
      } else if (right !== undefined) this.#report('group', right.group(request), right, errorCode);
      if (name === 'joinGroup' && errorCode === undefined) this.#watch.onJoin(request as JoinGroupRequest, undefined);
      return response;
    } catch (error) {
      const errorCode = kafkaErrorCode(error);
      if (right !== undefined && 'group' in right && errorCode !== undefined)
        this.#report('group', right.group(request), right, errorCode);
      const { refuses, isDenied } = meaningOf(errorCode);
      const isRefusal = name === 'joinGroup' && refuses === 'group' && isDenied !== true;
      if (isRefusal) this.#watch.onJoin(request as JoinGroupRequest, errorCode as JoinRefusal);
      if (error instanceof KafkaError && error.errorCode === 'LOGIN_REFUSED')
        this.#watch.onDialError(this.#address, error);
      throw error;
    }
  }

  /** Any other error says nothing about the right: it may have occurred before authorization. */
  #report(
    on: UsedRight['on'],
    name: string,
    { operation }: Pick<UsedRight, 'operation'>,
    errorCode: KafkaErrorCode | undefined,
  ): void {
    const { refuses, isDenied } = meaningOf(errorCode);
    const isKnown = errorCode === undefined || (isDenied === true && refuses === on);
    if (isKnown) this.#watch.onRight({ on, name, operation }, errorCode);
  }
}
