import { KafkaError, type KafkaErrorCode, kafkaErrorCode } from './kafka-error.ts';
import type * as port from './port.ts';

/** A right that a user may or may not have, as Kafka's authorizer names it. */
export interface UsedRight {
  readonly on: 'topic' | 'group';
  readonly name: string;
  readonly operation: 'Read' | 'Write' | 'Describe';
}

/** Observes how brokers treat this client: which logins they accept, and what they authorize. */
export interface Watch {
  /** A broker has accepted a login. Responses on open connections say nothing about the next login. */
  onLogin(address: port.BrokerAddress): void;
  /** A dial failed, or a broker ended the session of a connection. */
  onDialError(address: port.BrokerAddress, error: KafkaError): void;
  /** `errorCode`: the authorizer's; undefined when a broker executed a call that needs the right. */
  onRight(right: UsedRight, errorCode: KafkaErrorCode | undefined): void;
  /** A coordinator refuses a member for one of JOIN_REFUSALS; undefined when it accepts it. */
  onJoin(member: Pick<port.JoinGroupRequest, 'groupId' | 'sessionTimeoutMs'>, refusal: JoinRefusal | undefined): void;
}

const REFUSALS: Readonly<Record<UsedRight['on'], KafkaErrorCode>> = {
  topic: 'TOPIC_AUTHORIZATION_FAILED',
  group: 'GROUP_AUTHORIZATION_FAILED',
};

/** What lasts until the configuration or the group changes: a session outside of the brokers' limits, a foreign consumer. */
const JOIN_REFUSALS = ['INVALID_SESSION_TIMEOUT', 'INCONSISTENT_GROUP_PROTOCOL'] as const;
export type JoinRefusal = (typeof JOIN_REFUSALS)[number];

/** Wraps a dialer so that `watch` observes it. Responses and errors are passed through unchanged. */
export function watchedDialer(dialer: port.Dialer, watch: Watch): port.Dialer {
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

class WatchedLink implements port.BrokerLink {
  readonly #link: port.BrokerLink;
  readonly #address: port.BrokerAddress;
  readonly #watch: Watch;

  constructor(link: port.BrokerLink, address: port.BrokerAddress, watch: Watch) {
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

  async metadata(request: Parameters<port.BrokerLink['metadata']>[0]): Promise<port.MetadataResponse> {
    const response = await this.#watched(this.#link.metadata(request));
    for (const { name, errorCode } of response.topics)
      this.#report({ on: 'topic', name, operation: 'Describe' }, errorCode);
    return response;
  }

  async produce(request: port.ProduceRequest): Promise<port.ProduceResponse> {
    const response = await this.#watched(this.#link.produce(request));
    this.#report({ on: 'topic', name: request.topic, operation: 'Write' }, response.errorCode);
    return response;
  }

  async fetch(request: port.FetchRequest): Promise<port.FetchResponse> {
    const response = await this.#watched(this.#link.fetch(request));
    for (const { topic: name, errorCode } of response.partitions)
      this.#report({ on: 'topic', name, operation: 'Read' }, errorCode);
    return response;
  }

  listOffsets(request: port.ListOffsetsRequest): Promise<port.ListOffsetsResponse> {
    return this.#watched(this.#link.listOffsets(request));
  }

  findCoordinator(request: { readonly groupId: string }): Promise<port.FindCoordinatorResponse> {
    return this.#asMember(request.groupId, 'Describe', this.#link.findCoordinator(request));
  }

  async joinGroup(request: port.JoinGroupRequest): Promise<port.JoinGroupResponse> {
    const joining = this.#link.joinGroup(request);
    try {
      const response = await this.#asMember(request.groupId, 'Read', joining, ({ errorCode }) => errorCode);
      if (response.errorCode === undefined) this.#watch.onJoin(request, undefined);
      return response;
    } catch (error) {
      const refusal = JOIN_REFUSALS.find((one) => one === kafkaErrorCode(error));
      if (refusal !== undefined) this.#watch.onJoin(request, refusal);
      throw error;
    }
  }

  syncGroup(request: port.SyncGroupRequest): Promise<port.SyncGroupResponse> {
    return this.#asMember(request.groupId, 'Read', this.#link.syncGroup(request));
  }

  heartbeat(request: port.MemberRequest): Promise<port.BrokerResponse> {
    return this.#asMember(request.groupId, 'Read', this.#link.heartbeat(request));
  }

  leaveGroup(request: Omit<port.MemberRequest, 'generation'>): Promise<port.BrokerResponse> {
    return this.#watched(this.#link.leaveGroup(request));
  }

  commitOffsets(request: port.OffsetCommitRequest): Promise<port.OffsetCommitResponse> {
    return this.#watched(this.#link.commitOffsets(request));
  }

  fetchOffsets(request: port.OffsetFetchRequest): Promise<port.OffsetFetchResponse> {
    return this.#watched(this.#link.fetchOffsets(request));
  }

  createTopics(request: port.CreateTopicsRequest): Promise<port.CreateTopicsResponse> {
    return this.#watched(this.#link.createTopics(request));
  }

  describeConfigs(request: { readonly topics: readonly string[] }): Promise<port.DescribeConfigsResponse> {
    return this.#watched(this.#link.describeConfigs(request));
  }

  describeGroups(request: { readonly groupIds: readonly string[] }): Promise<port.DescribeGroupsResponse> {
    return this.#watched(this.#link.describeGroups(request));
  }

  authorizedOperations(request: { readonly topics: readonly string[] }): Promise<port.AuthorizedOperationsResponse> {
    return this.#watched(this.#link.authorizedOperations(request));
  }

  createAcls(request: { readonly rules: readonly port.AclRule[] }): Promise<port.CreateAclsResponse> {
    return this.#watched(this.#link.createAcls(request));
  }

  async #asMember<R extends port.BrokerResponse>(
    name: string,
    operation: UsedRight['operation'],
    pending: Promise<R>,
    errorCodeIn: (response: R) => KafkaErrorCode | undefined = () => undefined,
  ): Promise<R> {
    try {
      const response = await this.#watched(pending);
      this.#report({ on: 'group', name, operation }, errorCodeIn(response));
      return response;
    } catch (error) {
      if (kafkaErrorCode(error) === REFUSALS.group) this.#report({ on: 'group', name, operation }, REFUSALS.group);
      throw error;
    }
  }

  async #watched<R extends port.BrokerResponse>(pending: Promise<R>): Promise<R> {
    try {
      return await pending;
    } catch (error) {
      if (error instanceof KafkaError && error.errorCode === 'LOGIN_REFUSED')
        this.#watch.onDialError(this.#address, error);
      throw error;
    }
  }

  /** Any other error says nothing about the right: it may have occurred before authorization. */
  #report(right: UsedRight, errorCode: KafkaErrorCode | undefined): void {
    if (errorCode === undefined || errorCode === REFUSALS[right.on]) this.#watch.onRight(right, errorCode);
  }
}
