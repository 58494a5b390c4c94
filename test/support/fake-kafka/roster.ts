import type { JoinGroupRequest } from '../../../src/kafka/wire/group-apis.ts';
import type { KafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type { GroupMember } from './group-member.ts';

/** The members of a group, and their common protocol. The first to join leads, and there is always a leader. */
export class Roster {
  readonly #members = new Map<string, GroupMember>();
  leaderId = '';

  get all(): readonly GroupMember[] {
    return [...this.#members.values()];
  }

  get size(): number {
    return this.#members.size;
  }

  get(memberId: string): GroupMember | undefined {
    return this.#members.get(memberId);
  }

  add(member: GroupMember): void {
    this.#members.set(member.memberId, member);
    if (this.leaderId === '') this.leaderId = member.memberId;
  }

  remove(memberId: string): void {
    this.#members.delete(memberId);
    if (memberId === this.leaderId) this.leaderId = this.all[0]?.memberId ?? '';
  }

  /** Another process that replaces the leader leads. */
  replace(before: GroupMember, member: GroupMember): void {
    this.#members.delete(before.memberId);
    this.#members.set(member.memberId, member);
    if (before.memberId === this.leaderId) this.leaderId = member.memberId;
  }

  clear(): void {
    this.#members.clear();
    this.leaderId = '';
  }

  withInstance(instanceId: string | undefined): GroupMember | undefined {
    return instanceId === undefined ? undefined : this.all.find(({ settings }) => settings.instanceId === instanceId);
  }

  /** Why a caller is not a member. */
  refuses(memberId: string, instanceId: string | undefined): KafkaErrorCode | undefined {
    const known = this.withInstance(instanceId);
    if (known !== undefined && known.memberId !== memberId) return 'FENCED_INSTANCE_ID';
    const isStranger = instanceId !== undefined && known === undefined;
    return isStranger || !this.#members.has(memberId) ? 'UNKNOWN_MEMBER_ID' : undefined;
  }

  supports(protocols: JoinGroupRequest['protocols']): boolean {
    return protocols.some(({ name }) => this.#isKnownToAll(name));
  }

  /** The protocol that most members prefer, among those that all support. */
  selectProtocol(): string {
    const votes = new Map<string, number>();
    for (const { settings } of this.all) {
      const best = settings.protocols.find(({ name }) => this.#isKnownToAll(name))?.name ?? '';
      votes.set(best, (votes.get(best) ?? 0) + 1);
    }
    return [...votes].toSorted(([, a], [, b]) => b - a)[0]?.[0] ?? '';
  }

  get rebalanceMs(): number {
    return Math.max(0, ...this.all.map(({ settings }) => settings.rebalanceTimeoutMs));
  }

  #isKnownToAll(name: string): boolean {
    return this.all.every(({ settings }) => settings.protocols.some((one) => one.name === name));
  }
}
