import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { type Right, ROLES, rightsOf } from '../../src/adapters/kafka/topics/rights.ts';
import { etcdRightsOf } from '../../src/cli/namespace/namespace-run.ts';
import { loadWorkerConfig } from '../../src/config/config.ts';

const PAGE = readFileSync(new URL('../../docs/reference/rights.md', import.meta.url), 'utf8');
const CONFIG = loadWorkerConfig({ KAFKA_BROKERS: 'k:1', ETCD_ENDPOINTS: 'http://e:1', DATACENTER_ID: '0' });
const OPTIONS = { topics: CONFIG.topics, groupId: CONFIG.groupId, replyTopics: ['id.replies.orders'] };

function placeOf({ resource, pattern, name }: Right): string {
  return pattern === 'prefixed' ? `${resource}s \`${name}*\`` : `${resource} \`${name}\``;
}

/** The items of the lists under a heading. */
function itemsUnder(heading: string): string[] {
  const [, section = ''] = PAGE.split(`\n## ${heading}\n`);
  return (section.split('\n## ')[0] ?? '').split('\n').filter((line) => line.startsWith('- '));
}

function itemsOf(role: (typeof ROLES)[number]): string[] {
  const plain = rightsOf(role, OPTIONS);
  const items = (rights: readonly Right[], note = '') =>
    rights.map((right) => `- ${placeOf(right)}${note}: ${right.operations.join(', ')}`);
  const nestjs = rightsOf(role, { ...OPTIONS, nestjs: true });
  const more = nestjs.filter((right) => !plain.some(({ name }) => name === right.name));
  return [...items(plain), ...items(more, ' (NestJS)')];
}

describe('the page of rights', () => {
  test.for([...ROLES])('has the rights of %s', (role) => {
    expect(itemsUnder(role)).toEqual(itemsOf(role));
  });

  test('says what API_REPLY_TOPIC adds', () => {
    const before = rightsOf('worker', OPTIONS);
    const after = rightsOf('worker', { ...OPTIONS, topics: { ...CONFIG.topics, apiReplies: 'id.replies.http' } });
    const added = after.filter((right) => !before.some(({ name }) => name === right.name));
    expect(added).toMatchObject([{ name: 'id.replies.http', operations: ['Read'] }]);
    expect(PAGE).toContain('With `API_REPLY_TOPIC` the command adds Read on that topic');
  });

  test.for(['worker', 'operator', 'admin'] as const)('has the rights of %s in etcd', (role) => {
    expect(itemsUnder(`${role} in etcd`)).toEqual(
      etcdRightsOf(role, CONFIG).map(
        ({ permission, key, isPrefix }) => `- ${isPrefix ? `keys \`${key}*\`` : `key \`${key}\``}: ${permission}`,
      ),
    );
  });
});
