import { type Mutant, patch } from './mutant.ts';

/** Bugs in how pairs of topics share a namespace, are kept apart, and outlast partitions that are added by mistake. */
export const GROWTH_MUTANTS: readonly Mutant[] = [
  {
    name: 'a group bound to no request topic',
    scenario: 'growth',
    patches: [
      patch(
        'src/identity/bindings.ts',
        `key: \`\${root}groups/\${groupId}\`,`,
        `key: \`\${root}groups/\${groupId}/\${requests}\`,`,
      ),
    ],
  },
  {
    name: 'a ledger bound to no request topic',
    scenario: 'growth',
    patches: [
      patch(
        'src/identity/bindings.ts',
        `key: \`\${root}ledgers/\${ledger}\`,`,
        `key: \`\${root}ledgers/\${ledger}/\${requests}\`,`,
      ),
    ],
  },
  {
    name: 'one partition count for all request topics',
    scenario: 'growth',
    patches: [
      patch(
        'src/identity/bindings.ts',
        `key: \`\${root}request-topics/\${requests}/partitions\`,`,
        `key: \`\${root}partitions\`,`,
      ),
    ],
  },
  {
    name: 'no worker starts after partitions were added',
    firstSeed: 8,
    patches: [patch('src/worker/topics-watch.ts', 'if (await isCountBound(etcd, bindings)) return report;', '')],
  },
  {
    name: 'added partitions are read by nobody',
    firstSeed: 26,
    patches: [
      patch(
        'src/worker/request-group.ts',
        'beyond.filter((one) => partitions.includes(one % settings.partitions))',
        'beyond.filter((one) => one < 0)',
      ),
    ],
  },
];
