import type { JoinGroupRequest, JoinGroupResponse, SyncGroupResponse } from '../../../src/kafka/wire/group-apis.ts';
import type { KafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';

/** Takes the only answer to a call: the result, or the name of the error. */
export interface Reply<R> {
  give(answer: R): void;
  refuse(errorCode: KafkaErrorCode): void;
}

type Settings = Pick<JoinGroupRequest, 'protocols' | 'sessionTimeoutMs' | 'rebalanceTimeoutMs' | 'instanceId'>;

/** A member as its coordinator knows it. */
export class GroupMember {
  readonly memberId: string;
  readonly clientId: string;
  settings: Settings;
  assignment: Buffer = Buffer.alloc(0);
  /** Joins for the first time: it may have crashed, so waiting does not keep it a member forever. */
  isNew = true;
  joining: Reply<JoinGroupResponse> | undefined;
  syncing: Reply<SyncGroupResponse> | undefined;

  constructor(memberId: string, clientId: string, settings: Settings) {
    this.memberId = memberId;
    this.clientId = clientId;
    this.settings = settings;
  }

  get name(): { readonly memberId: string; readonly instanceId?: string } {
    const { instanceId } = this.settings;
    return { memberId: this.memberId, ...(instanceId === undefined ? {} : { instanceId }) };
  }

  get isStatic(): boolean {
    return this.settings.instanceId !== undefined;
  }

  /** Whether this member waits for the coordinator, and not the other way round. */
  get waits(): boolean {
    return this.joining !== undefined || this.syncing !== undefined;
  }

  /** Whether a join has the same protocols and metadata as before. */
  matches(protocols: JoinGroupRequest['protocols']): boolean {
    const known = this.settings.protocols;
    const isKnown = ({ name, metadata }: JoinGroupRequest['protocols'][number], i: number): boolean =>
      name === known[i]?.name && metadata.equals(known[i].metadata);
    return protocols.length === known.length && protocols.every(isKnown);
  }

  metadataFor(protocol: string): Buffer {
    return this.settings.protocols.find(({ name }) => name === protocol)?.metadata ?? Buffer.alloc(0);
  }

  /** The persisted state, without pending calls. */
  copy(): GroupMember {
    const copy = new GroupMember(this.memberId, this.clientId, this.settings);
    copy.assignment = this.assignment;
    copy.isNew = false;
    return copy;
  }

  answerJoin(answer: JoinGroupResponse): void {
    const reply = this.joining;
    this.joining = undefined;
    reply?.give(answer);
  }

  refuseJoin(errorCode: KafkaErrorCode): void {
    const reply = this.joining;
    this.joining = undefined;
    reply?.refuse(errorCode);
  }

  answerSync(): void {
    const reply = this.syncing;
    this.syncing = undefined;
    reply?.give({ throttleMs: 0, assignment: this.assignment });
  }

  refuseSync(errorCode: KafkaErrorCode): void {
    const reply = this.syncing;
    this.syncing = undefined;
    reply?.refuse(errorCode);
  }
}
