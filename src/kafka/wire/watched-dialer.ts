import { type FaultName, faultOf, KafkaFault } from './fault.ts';
import type * as port from './port.ts';

/** What a user may or may not do, as Kafka's authorizer names it. */
export interface Right {
  readonly on: 'topic' | 'group';
  readonly name: string;
  readonly operation: 'Read' | 'Write' | 'Describe';
}

/** Is told what brokers say of us: whether they let us in, and what they let us do. */
export interface Watch {
  /** A broker has let us in. Answers on connections that are open already say nothing of the next login. */
  onLogin(address: port.BrokerAddress): void;
  /** A broker could not be dialled, or has ended the session of a connection. */
  onDialFault(address: port.BrokerAddress, error: KafkaFault): void;
  /** `fault`: of the authorizer; undefined where a broker has done what the right is needed for. */
  onRight(right: Right, fault: FaultName | undefined): void;
}

const REFUSALS: Readonly<Record<Right['on'], FaultName>> = {
  topic: 'TOPIC_AUTHORIZATION_FAILED',
  group: 'GROUP_AUTHORIZATION_FAILED',
};

/** The same dialer, but `watch` is told. Answers and faults are passed on as they are. */
export function watchedDialer(dialer: port.Dialer, watch: Watch): port.Dialer {
  return {
    async dial(address, signal) {
      try {
        const link = await dialer.dial(address, signal);
        watch.onLogin(address);
        return new WatchedLink(link, address, watch);
      } catch (error) {
        if (error instanceof KafkaFault) watch.onDialFault(address, error);
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
    const answer = await this.#heard(this.#link.metadata(request));
    for (const { name, fault } of answer.topics) this.#tell({ on: 'topic', name, operation: 'Describe' }, fault);
    return answer;
  }

  async produce(request: port.ProduceRequest): Promise<port.ProduceAnswer> {
    const answer = await this.#heard(this.#link.produce(request));
    this.#tell({ on: 'topic', name: request.topic, operation: 'Write' }, answer.fault);
    return answer;
  }

  async fetch(request: port.FetchRequest): Promise<port.FetchAnswer> {
    const answer = await this.#heard(this.#link.fetch(request));
    for (const { topic: name, fault } of answer.partitions) this.#tell({ on: 'topic', name, operation: 'Read' }, fault);
    return answer;
  }

  listOffsets(request: port.ListOffsetsRequest): Promise<port.ListOffsetsAnswer> {
    return this.#heard(this.#link.listOffsets(request));
  }

  findCoordinator(request: { readonly groupId: string }): Promise<port.CoordinatorAnswer> {
    return this.#asMember(request.groupId, 'Describe', this.#link.findCoordinator(request));
  }

  joinGroup(request: port.JoinRequest): Promise<port.JoinAnswer> {
    return this.#asMember(request.groupId, 'Read', this.#link.joinGroup(request), ({ fault }) => fault);
  }

  syncGroup(request: port.SyncRequest): Promise<port.SyncAnswer> {
    return this.#asMember(request.groupId, 'Read', this.#link.syncGroup(request));
  }

  heartbeat(request: port.MemberRequest): Promise<port.Answer> {
    return this.#asMember(request.groupId, 'Read', this.#link.heartbeat(request));
  }

  leaveGroup(request: Omit<port.MemberRequest, 'generation'>): Promise<port.Answer> {
    return this.#heard(this.#link.leaveGroup(request));
  }

  commitOffsets(request: port.CommitRequest): Promise<port.CommitAnswer> {
    return this.#heard(this.#link.commitOffsets(request));
  }

  fetchOffsets(request: port.OffsetsRequest): Promise<port.OffsetsAnswer> {
    return this.#heard(this.#link.fetchOffsets(request));
  }

  createTopics(request: port.CreateTopicsRequest): Promise<port.CreateTopicsAnswer> {
    return this.#heard(this.#link.createTopics(request));
  }

  describeConfigs(request: { readonly topics: readonly string[] }): Promise<port.ConfigsAnswer> {
    return this.#heard(this.#link.describeConfigs(request));
  }

  describeGroups(request: { readonly groupIds: readonly string[] }): Promise<port.GroupsAnswer> {
    return this.#heard(this.#link.describeGroups(request));
  }

  authorizedOperations(request: { readonly topics: readonly string[] }): Promise<port.OperationsAnswer> {
    return this.#heard(this.#link.authorizedOperations(request));
  }

  createAcls(request: { readonly rules: readonly port.AclRule[] }): Promise<port.AclsAnswer> {
    return this.#heard(this.#link.createAcls(request));
  }

  async #asMember<R extends port.Answer>(
    name: string,
    operation: Right['operation'],
    asked: Promise<R>,
    faultIn: (answer: R) => FaultName | undefined = () => undefined,
  ): Promise<R> {
    try {
      const answer = await this.#heard(asked);
      this.#tell({ on: 'group', name, operation }, faultIn(answer));
      return answer;
    } catch (error) {
      if (faultOf(error) === REFUSALS.group) this.#tell({ on: 'group', name, operation }, REFUSALS.group);
      throw error;
    }
  }

  async #heard<R extends port.Answer>(asked: Promise<R>): Promise<R> {
    try {
      return await asked;
    } catch (error) {
      if (error instanceof KafkaFault && error.fault === 'LOGIN_REFUSED') this.#watch.onDialFault(this.#address, error);
      throw error;
    }
  }

  /** Any other fault says nothing of the right: it may have been found before the right was looked at. */
  #tell(right: Right, fault: FaultName | undefined): void {
    if (fault === undefined || fault === REFUSALS[right.on]) this.#watch.onRight(right, fault);
  }
}
