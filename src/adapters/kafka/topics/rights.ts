import { nestReplyTopic } from '../../../codec/reply-policy.ts';
import type { AclOperation, AclRule } from '../../../kafka/wire/topic-apis.ts';
import type { TopicSettings } from './plan.ts';

/** The roles that have their own user: see `rightsOf`. */
export const ROLES = ['worker', 'client', 'operator', 'admin'] as const;
export type Role = (typeof ROLES)[number];

/** The operations allowed on one resource, or on all whose names begin with `name`. */
export interface Right {
  readonly resource: AclRule['resource'];
  readonly pattern: AclRule['pattern'];
  readonly name: string;
  readonly operations: readonly AclOperation[];
}

/** The names of topics and groups that the rights of a role refer to. */
export interface RightsOptions {
  readonly topics: Pick<
    TopicSettings,
    'requests' | 'ledger' | 'deadLetters' | 'witness' | 'replyPrefix' | 'apiReplies'
  >;
  readonly groupId: string;
  /** A client's reply topics; for an admin, those to create besides the planned ones. */
  readonly replyTopics?: readonly string[];
  /** Include the reply topic of NestJS, `<request topic>.reply`. */
  readonly nestjs?: boolean;
}

/**
 * The least rights that each role needs where an authorizer denies by default:
 *
 * - worker: `idalloc worker`.
 * - client: a service that sends requests and reads its replies; `idalloc request` is one.
 * - operator: the commands that change nothing (`audit`, `trace`, `deadletters list`, `sequence list`, `doctor`,
 *   `topics check`, `replay --dry-run`).
 * - admin: the commands that create and change (`topics init`, `deadletters resend`, `replay`, `namespace`,
 *   `sequence`). It can't grant rights: `topics acls --apply` needs Alter on the cluster, and a user with that can do
 *   anything.
 *
 * The page of rights, the command that grants them, `doctor` and the tests on secured servers all use this list.
 */
export function rightsOf(role: Role, options: RightsOptions): readonly Right[] {
  const { topics, groupId, replyTopics = [], nestjs = false } = options;
  const { requests, ledger, witness, deadLetters, replyPrefix, apiReplies } = topics;
  const waited = nestjs ? [nestReplyTopic(requests)] : [];
  switch (role) {
    case 'worker':
      return [
        ...[requests, ledger, witness].map((name) => on(name, 'Read', 'Write', 'DescribeConfigs')),
        on(deadLetters, 'Write', 'DescribeConfigs'),
        under(replyPrefix, 'Write'),
        ...(apiReplies === undefined ? [] : [on(apiReplies, 'Read')]),
        ...waited.map((name) => on(name, 'Write')),
        onGroup(groupId, 'Read'),
      ];
    case 'client':
      return [on(requests, 'Write'), ...[...replyTopics, ...waited].map((name) => on(name, 'Read'))];
    case 'operator':
      return [
        ...[requests, ledger, witness, deadLetters].map((name) => on(name, 'Read', 'DescribeConfigs')),
        under(replyPrefix, 'Read', 'DescribeConfigs'),
        ...waited.map((name) => on(name, 'Read')),
        onGroup(groupId, 'Describe'),
      ];
    case 'admin':
      return [
        on(requests, 'Create', 'Read', 'Write', 'DescribeConfigs'),
        on(ledger, 'Create', 'Read', 'Write', 'DescribeConfigs'),
        on(witness, 'Create', 'Read', 'Write', 'DescribeConfigs'),
        on(deadLetters, 'Create', 'Read', 'DescribeConfigs'),
        under(replyPrefix, 'Create', 'Read', 'DescribeConfigs'),
        ...waited.map((name) => on(name, 'Create', 'Read')),
        onGroup(groupId, 'Read'),
      ];
  }
}

function on(name: string, ...operations: AclOperation[]): Right {
  return { resource: 'topic', pattern: 'literal', name, operations };
}

function under(name: string, ...operations: AclOperation[]): Right {
  return { resource: 'topic', pattern: 'prefixed', name, operations };
}

function onGroup(name: string, ...operations: AclOperation[]): Right {
  return { resource: 'group', pattern: 'literal', name, operations };
}

/** The ACL rules that grant the rights, from any address. */
export function aclRules(principal: string, rights: readonly Right[]): AclRule[] {
  return rights.flatMap(({ operations, ...place }) =>
    operations.map((operation) => ({ ...place, principal, host: '*', operation })),
  );
}

/** One `kafka-acls` command per right. */
export function aclCommands(bootstrap: readonly string[], principal: string, rights: readonly Right[]): string[] {
  return rights.map(({ resource, pattern, name, operations }) => {
    const allowed = operations.map((operation) => `--operation ${operation}`).join(' ');
    const place = `--${resource} ${quoted(name)}${pattern === 'prefixed' ? ' --resource-pattern-type prefixed' : ''}`;
    const server = `--bootstrap-server ${quoted(bootstrap.join(','))}`;
    return `kafka-acls ${server} --add --allow-principal ${quoted(principal)} ${allowed} ${place}`;
  });
}

/** Quoted for a shell: certificate names have commas, equals signs and spaces. */
export function quoted(text: string): string {
  return /^[A-Za-z0-9_./:@,-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;
}
