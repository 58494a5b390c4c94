import { type RightsOptions, rightsOf } from '../adapters/kafka/topics/rights.ts';
import type { Runtime } from '../async/runtime.ts';
import type { ThrottledLog } from '../async/throttle.ts';
import { formatHostPort } from '../core/host-port.ts';
import { type KafkaError, type KafkaErrorCode, kafkaErrorCode } from '../kafka/wire/kafka-error.ts';
import { isUntrusted } from '../kafka/wire/kafkajs-dialer.ts';
import type { BrokerAddress } from '../kafka/wire/port.ts';
import { type KafkaSettings, unreachable, userOf } from '../kafka/wire/settings.ts';
import type { JoinRefusal, UsedRight, Watch } from '../kafka/wire/watched-dialer.ts';
import type { KafkaResource } from '../metrics/vitals.ts';

export interface KafkaRefusalsOptions {
  readonly kafka: KafkaSettings;
  readonly topics: RightsOptions['topics'];
  readonly groupId: string;
  readonly runtime: Pick<Runtime, 'monotonicMs'>;
  readonly lines: ThrottledLog;
}

/** What the brokers refuse. */
interface RefusedCall {
  readonly on: UsedRight['on'] | 'broker';
  readonly name: string;
  readonly operation: UsedRight['operation'] | 'login' | 'join';
}

interface StandingRefusal extends RefusedCall {
  readonly resource: KafkaResource;
  /** The refused operation and the cause, with the remedy. */
  readonly detail: string;
  readonly sinceMs: number;
  readonly lastMs: number;
}

/** Refused operations are retried more often than this, unless they are no longer needed. */
const REFUSAL_LIFETIME_MS = 30_000;
/** A restarting broker refuses briefly, until its authorizer and users are loaded. */
const LOG_AFTER_MS = 1_000;
const LOG_EVERY_MS = 60_000;
/** Requests may name any number of topics, so these limits bound the memory. */
const MAX_REPLY_TOPICS = 1_000;
const MAX_REFUSALS = 1_000;
const AND = new Intl.ListFormat('en-GB', { type: 'conjunction' });

/**
 * Logins, operations and sessions that the brokers refuse to this worker. A refusal lasts until the same operation
 * succeeds, or has not been tried for a while.
 *
 * A refused reply topic is normally its requesters' problem. It is ours when it has accepted replies before and no
 * reply topic has accepted any since: then the permission was revoked, and requests wait for it.
 */
export class KafkaRefusals implements Watch {
  readonly #options: KafkaRefusalsOptions;
  /** Oldest first. */
  readonly #refusals = new Map<string, StandingRefusal>();
  /** Resources whose refusal was logged, but not yet its end. */
  readonly #logged = new Set<KafkaResource>();
  /** Reply topics that have accepted records, least recent first. */
  readonly #written = new Map<string, number>();
  #repliedMs = Number.NEGATIVE_INFINITY;
  /** The members of the group that are not workers, as far as they are known. */
  #foreign: readonly string[] = [];

  constructor(options: KafkaRefusalsOptions) {
    this.#options = options;
  }

  /** All resources that are refused now. */
  get resources(): ReadonlySet<KafkaResource> {
    return new Set([...this.#current().values()].map(({ resource }) => resource));
  }

  /** The refusals that block requests, with their remedies; undefined for none. */
  get detail(): string | undefined {
    const found = [...this.#current().values()].filter((refusal) => this.#isOurs(refusal));
    const details = new Set(found.map((refusal) => this.#detailOf(refusal)));
    return details.size === 0 ? undefined : [...details].join('; ');
  }

  /** Whether records for the topic must wait because the permission to write to it was revoked. */
  isRevoked(topic: string): boolean {
    return [...this.#current().values()].some(
      (refusal) => refusal.on === 'topic' && refusal.name === topic && this.#isOurs(refusal),
    );
  }

  onLogin(address: BrokerAddress): void {
    this.#accepted(loginAt(address));
  }

  onDialError(address: BrokerAddress, error: KafkaError): void {
    if (kafkaErrorCode(error) !== 'LOGIN_REFUSED' && !isUntrusted(error)) return;
    this.#refused(loginAt(address), 'login', unreachable(error, this.#options.kafka).message);
  }

  onRight(right: UsedRight, errorCode: KafkaErrorCode | undefined): void {
    const { on, name, operation } = right;
    const resource = on === 'group' ? 'group' : this.#resourceOf(name);
    if (errorCode === undefined) {
      if (resource === 'replies' && operation === 'Write') this.#wrote(name);
      this.#accepted(right);
      return;
    }
    const user = userOf(this.#options.kafka.sasl);
    const whom = user === undefined ? 'this worker' : `'${user}'`;
    const what = `${operation} on ${on} '${name}'`;
    this.#refused(right, resource, `the brokers refuse ${what}: allow ${this.#neededOn(on, name)} to ${whom}`);
  }

  onJoin({ groupId, sessionTimeoutMs }: Parameters<Watch['onJoin']>[0], refusal: JoinRefusal | undefined): void {
    const join = { on: 'group', name: groupId, operation: 'join' } as const;
    if (refusal === undefined) {
      this.#accepted(join);
      this.#foreign = [];
      return;
    }
    const foreign = `this worker in group '${groupId}', which has a consumer that is not a worker: stop that consumer, or set KAFKA_GROUP_ID to a group of the workers' own`;
    const limits = 'group.min.session.timeout.ms (6000 by default) to group.max.session.timeout.ms';
    const detail = {
      INVALID_SESSION_TIMEOUT: `a session of ${sessionTimeoutMs} ms in group '${groupId}': set KAFKA_SESSION_TIMEOUT_MS within their ${limits}`,
      INVALID_GROUP_ID: `the name of group '${groupId}': set KAFKA_GROUP_ID to another one`,
      GROUP_MAX_SIZE_REACHED: `this worker in group '${groupId}', which has as many members as they allow: raise group.max.size on the brokers`,
      INCONSISTENT_GROUP_PROTOCOL: foreign,
      FOREIGN_MEMBER: foreign,
    };
    this.#refused(join, 'group', `the brokers refuse ${detail[refusal]}`);
  }

  /** Who keeps this worker out of the group; shown until it is accepted there. */
  foreignMembers(names: readonly string[]): void {
    this.#foreign = names;
  }

  #detailOf({ operation, detail }: StandingRefusal): string {
    return operation === 'join' && this.#foreign.length > 0
      ? `${detail}; not a worker: ${this.#foreign.join(', ')}`
      : detail;
  }

  /** All operations that a worker needs on it, so that the remedy is one step; unknown topics count as reply topics. */
  #neededOn(on: UsedRight['on'], name: string): string {
    const rights = rightsOf('worker', { ...this.#options, nestjs: true }).filter(({ resource }) => resource === on);
    const named = rights.find((right) => right.pattern === 'literal' && right.name === name);
    const { operations = [] } = named ?? rights.find(({ pattern }) => pattern === 'prefixed') ?? {};
    return AND.format(operations);
  }

  #resourceOf(topic: string): Exclude<KafkaResource, 'login' | 'group'> {
    const { requests, ledger, witness, deadLetters } = this.#options.topics;
    switch (topic) {
      case requests:
        return 'requests';
      case ledger:
        return 'ledger';
      case witness:
        return 'witness';
      case deadLetters:
        return 'dead_letters';
      default:
        return 'replies';
    }
  }

  #isOurs({ resource, name, sinceMs }: StandingRefusal): boolean {
    if (resource !== 'replies') return true;
    return this.#written.has(name) && this.#repliedMs < sinceMs;
  }

  #wrote(topic: string): void {
    this.#repliedMs = this.#options.runtime.monotonicMs();
    this.#written.delete(topic);
    this.#written.set(topic, this.#repliedMs);
    const [oldest] = this.#written.keys();
    if (this.#written.size > MAX_REPLY_TOPICS && oldest !== undefined) this.#written.delete(oldest);
  }

  #refused(refused: RefusedCall, resource: KafkaResource, detail: string): void {
    const key = keyOf(refused);
    const nowMs = this.#options.runtime.monotonicMs();
    const before = this.#current().get(key);
    if (before === undefined && this.#refusals.size >= MAX_REFUSALS) return;
    const { on, name, operation } = refused;
    const refusal = { on, name, operation, resource, detail, sinceMs: before?.sinceMs ?? nowMs, lastMs: nowMs };
    this.#refusals.set(key, refusal);
    if (nowMs - refusal.sinceMs >= LOG_AFTER_MS && this.#isOurs(refusal)) this.#log(refusal);
  }

  #accepted(refused: RefusedCall): void {
    if (this.#refusals.size === 0) return; // nearly always, and asked for each call
    const key = keyOf(refused);
    const refusal = this.#refusals.get(key);
    if (refusal === undefined) return;
    this.#refusals.delete(key);
    const { resource } = refusal;
    if (this.#logged.has(resource) && !this.resources.has(resource)) {
      this.#logged.delete(resource);
      this.#options.lines('info', { resource }, 'the brokers accept this worker again');
    }
  }

  /** One line for a resource, whatever the number of brokers and operations. */
  #log(refusal: StandingRefusal): void {
    const { resource } = refusal;
    const fields = { code: 'KAFKA_REFUSED', resource, error: this.#detailOf(refusal) };
    const repetition = { about: resource, everyMs: LOG_EVERY_MS };
    if (this.#options.lines('error', fields, 'the brokers refuse this worker', repetition)) this.#logged.add(resource);
  }

  #current(): ReadonlyMap<string, StandingRefusal> {
    const nowMs = this.#options.runtime.monotonicMs();
    for (const [key, { lastMs }] of this.#refusals)
      if (nowMs - lastMs > REFUSAL_LIFETIME_MS) this.#refusals.delete(key);
    return this.#refusals;
  }
}

function loginAt(address: BrokerAddress): RefusedCall {
  return { on: 'broker', name: formatHostPort(address), operation: 'login' };
}

function keyOf({ on, name, operation }: RefusedCall): string {
  return `${operation} ${on} ${name}`;
}
