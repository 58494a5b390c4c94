import { readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { type Right, ROLES, rightsOf } from '../../src/adapters/kafka/topics/rights.ts';
import { etcdRightsOf } from '../../src/cli/namespace/rights-run.ts';
import { loadWorkerConfig } from '../../src/config/config.ts';

const PAGE = readFileSync(new URL('../../docs/reference/rights.md', import.meta.url), 'utf8');
const CONFIG = loadWorkerConfig({ KAFKA_BROKERS: 'k:1', ETCD_ENDPOINTS: 'http://e:1', DATACENTER_ID: '0' });
const OPTIONS = { topics: CONFIG.topics, groupId: CONFIG.groupId, replyTopics: ['id.replies.orders'] };

function placeOf({ resource, pattern, name }: Right): string {
  return pattern === 'prefixed' ? `${resource}s \`${name}*\`` : `${resource} \`${name}\``;
}

function rowsOf(role: (typeof ROLES)[number]): string[] {
  const plain = rightsOf(role, OPTIONS);
  const rows = (rights: readonly Right[], note = '') =>
    rights.map((right) => `| ${role} | ${placeOf(right)}${note} | ${right.operations.join(', ')} |`);
  const nestjs = rightsOf(role, { ...OPTIONS, nestjs: true });
  const more = nestjs.filter((right) => !plain.some(({ name }) => name === right.name));
  return [...rows(plain), ...rows(more, ' (NestJS)')];
}

describe('the page of rights', () => {
  test('has the rights of the list, row by row', () => {
    const rows = PAGE.split('\n').filter((line) =>
      ROLES.some((role) => /^(topic|group)/.test(line.split(`| ${role} | `)[1] ?? '')),
    );
    expect(rows).toEqual(ROLES.flatMap(rowsOf));
  });

  test('has the rights in etcd, row by row', () => {
    const rows = (['worker', 'operator', 'admin'] as const).flatMap((role) =>
      etcdRightsOf(role, CONFIG).map(({ permission, key, isPrefix }) => {
        return `| ${role} in etcd | ${isPrefix ? `keys \`${key}*\`` : `key \`${key}\``} | ${permission} |`;
      }),
    );
    expect(PAGE.split('\n').filter((line) => / in etcd \| keys? `/.test(line))).toEqual(rows);
  });
});
