import { KafkaError, type KafkaErrorCode, kafkaErrorCode } from './kafka-error.ts';
import type * as port from './port.ts';

/** What a user may or may not do, as Kafka's authorizer names it. */
export interface Right {
  readonly on: 'topic' | 'group';
  readonly name: string;
  readonly operation: 'Read' | 'Write' | 'Describe';
}

/** Observes how brokers treat this client: which logins they accept, and what they authorize. */
export interface Watch {
  /** A broker has accepted a login. Answers on open connections say nothing about the next login. */
  onLogin(address: port.BrokerAddress): void;
  /** A dial failed, or a broker ended the session of a connection. */
  onDialError(address: port.BrokerAddress, error: KafkaError): void;
  /** `errorCode`: the authorizer's; undefined when a broker executed a call that needs the right. */
  onRight(right: Right, errorCode: KafkaErrorCode | undefined): void;
}

const REFUSALS: Readonly<Record<Right['on'], KafkaErrorCode>> = {
  topic: 'TOPIC_AUTHORIZATION_FAILED',
  group: 'GROUP_AUTHORIZATION_FAILED',
};

/** Wraps a dialer so that `watch` observes it. Answers and errors are passed through unchanged. */
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

  async metadata(request: Parameters<port.BrokerLink['metadata']>[0]): Promise<port.MetadataAnswer> {
    const answer = await this.#watched(this.#link.metadata(request));
    for (const { name, errorCode } of answer.topics)
      this.#report({ on: 'topic', name, operation: 'Describe' }, errorCode);
    return answer;
  }

  async produce(request: port.ProduceRequest): Promise<port.ProduceAnswer> {
    const answer = await this.#watched(this.#link.produce(request));
    this.#report({ on: 'topic', name: request.topic, operation: 'Write' }, answer.errorCode);
    return answer;
  }

  async fetch(request: port.FetchRequest): Promise<port.FetchAnswer> {
    const answer = await this.#watched(this.#link.fetch(request));
    for (const { topic: name, errorCode } of answer.partitions)
      this.#report({ on: 'topic', name, operation: 'Read' }, errorCode);
    return answer;
  }

  listOffsets(request: port.ListOffsetsRequest): Promise<port.ListOffsetsAnswer> {
    return this.#watched(this.#link.listOffsets(request));
  }

  findCoordinator(request: { readonly groupId: string }): Promise<port.CoordinatorAnswer> {
    return this.#asMember(request.groupId, 'Describe', this.#link.findCoordinator(request));
  }

  joinGroup(request: port.JoinRequest): Promise<port.JoinAnswer> {
    return this.#asMember(request.groupId, 'Read', this.#link.joinGroup(request), ({ errorCode }) => errorCode);
  }

  syncGroup(request: port.SyncRequest): Promise<port.SyncAnswer> {
    return this.#asMember(request.groupId, 'Read', this.#link.syncGroup(request));
  }

  heartbeat(request: port.MemberRequest): Promise<port.Answer> {
    return this.#asMember(request.groupId, 'Read', this.#link.heartbeat(request));
  }

  leaveGroup(request: Omit<port.MemberRequest, 'generation'>): Promise<port.Answer> {
    return this.#watched(this.#link.leaveGroup(request));
  }

  commitOffsets(request: port.CommitRequest): Promise<port.CommitAnswer> {
    return this.#watched(this.#link.commitOffsets(request));
  }

  fetchOffsets(request: port.OffsetsRequest): Promise<port.OffsetsAnswer> {
    return this.#watched(this.#link.fetchOffsets(request));
  }

  createTopics(request: port.CreateTopicsRequest): Promise<port.CreateTopicsAnswer> {
    return this.#watched(this.#link.createTopics(request));
  }

  describeConfigs(request: { readonly topics: readonly string[] }): Promise<port.ConfigsAnswer> {
    return this.#watched(this.#link.describeConfigs(request));
  }

  describeGroups(request: { readonly groupIds: readonly string[] }): Promise<port.GroupsAnswer> {
    return this.#watched(this.#link.describeGroups(request));
  }

  authorizedOperations(request: { readonly topics: readonly string[] }): Promise<port.OperationsAnswer> {
    return this.#watched(this.#link.authorizedOperations(request));
  }

  createAcls(request: { readonly rules: readonly port.AclRule[] }): Promise<port.AclsAnswer> {
    return this.#watched(this.#link.createAcls(request));
  }

  async #asMember<R extends port.Answer>(
    name: string,
    operation: Right['operation'],
    asked: Promise<R>,
    faultIn: (answer: R) => KafkaErrorCode | undefined = () => undefined,
  ): Promise<R> {
    try {
      const answer = await this.#watched(asked);
      this.#report({ on: 'group', name, operation }, faultIn(answer));
      return answer;
    } catch (error) {
      if (kafkaErrorCode(error) === REFUSALS.group) this.#report({ on: 'group', name, operation }, REFUSALS.group);
      throw error;
    }
  }

  async #watched<R extends port.Answer>(asked: Promise<R>): Promise<R> {
    try {
      return await asked;
    } catch (error) {
      if (error instanceof KafkaError && error.errorCode === 'LOGIN_REFUSED')
        this.#watch.onDialError(this.#address, error);
      throw error;
    }
  }

  /** Any other error says nothing about the right: it may have occurred before authorization. */
  #report(right: Right, errorCode: KafkaErrorCode | undefined): void {
    if (errorCode === undefined || errorCode === REFUSALS[right.on]) this.#watch.onRight(right, errorCode);
  }
}
