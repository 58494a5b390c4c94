import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { planTopics, type TopicSettings } from '../../src/adapters/kafka/topics/plan.ts';
import { type Right, ROLES, rightsOf } from '../../src/adapters/kafka/topics/rights.ts';
import { VARIABLES } from '../../src/config/variables.ts';
import { PRESETS, type PresetName, presetLayout } from '../../src/core/presets.ts';
import { readableJson } from '../dev/json.ts';
import { ROOT } from '../dev/paths.ts';
import { chartReadme } from './readme.ts';
import { VALUES_SCHEMA } from './values-schema.ts';

/**
 * The variables that the chart computes with; one that is not set is empty, and so is a name made of it. Their values
 * replace `${NAME}` in the topics and rights.
 */
const USED = [
  'KAFKA_GROUP_ID',
  'ID_SPACE',
  'REQUEST_TOPIC',
  'LEDGER_TOPIC',
  'DEAD_LETTER_TOPIC',
  'REPLY_TOPIC_PREFIX',
  'API_REPLY_TOPIC',
  'REQUEST_PARTITIONS',
  'TOPIC_REPLICATION_FACTOR',
  'REQUEST_RETENTION_MS',
  'LEDGER_RETENTION_MS',
  'LAYOUT',
  'DRAIN_TIMEOUT_MS',
] as const;

const variable = (name: (typeof USED)[number]) => `\${${name}}`;

/** Numbers that stand for variables until the text is made; no setting has them by itself. */
const STAND_INS = {
  REQUEST_PARTITIONS: 900_000_001,
  REQUEST_RETENTION_MS: 900_000_002,
  LEDGER_RETENTION_MS: 900_000_003,
};

const TOPICS: TopicSettings = {
  requests: variable('REQUEST_TOPIC'),
  ledger: variable('LEDGER_TOPIC'),
  deadLetters: variable('DEAD_LETTER_TOPIC'),
  witness: `${variable('ID_SPACE')}.witness`,
  replyPrefix: variable('REPLY_TOPIC_PREFIX'),
  apiReplies: variable('API_REPLY_TOPIC'),
  requestPartitions: STAND_INS.REQUEST_PARTITIONS,
  replicationFactor: 3,
  requestRetentionMs: STAND_INS.REQUEST_RETENTION_MS,
  ledgerRetentionMs: STAND_INS.LEDGER_RETENTION_MS,
  allowWeakLedger: false,
};
/** The order of `planTopics`. */
const PURPOSES = ['requests', 'ledger', 'dead-letters', 'witness', 'cli-replies', 'http-replies'];

/** As Strimzi writes a right. */
const strimziRight = ({ resource, pattern, name, operations }: Right) => {
  return { resource, name, patternType: pattern === 'prefixed' ? 'prefix' : pattern, operations };
};

function kafkaFacts(): unknown {
  const options = { topics: TOPICS, groupId: variable('KAFKA_GROUP_ID'), replyTopics: [`\${REPLY_TOPIC}`] };
  const highest = Object.keys(PRESETS).map((name) => [
    name,
    presetLayout(name as PresetName, { epochMs: 0 }).maxWorker,
  ]);
  return {
    defaults: Object.fromEntries(USED.map((name) => [name, VARIABLES[name].fallback ?? ''])),
    highestWorker: Object.fromEntries(highest),
    topics: planTopics(TOPICS).map(({ name, partitions, configs }, i) => {
      return { purpose: PURPOSES[i], name, partitions, config: configs };
    }),
    rights: Object.fromEntries(ROLES.map((role) => [role, rightsOf(role, options).map(strimziRight)])),
  };
}

function withVariables(text: string): string {
  const named = new Map(Object.entries(STAND_INS).map(([name, number]) => [`${number}`, name]));
  return text.replaceAll(/"?(90000000\d)"?/g, (_, number) => `"\${${named.get(number)}}"`);
}

/** helm reads no file outside of the chart, and who installs it from a checkout runs nothing before. */
const copyOf = (path: string) => readFileSync(join(ROOT, path), 'utf8');

/** The chart's files that follow from the code, by their paths in the chart. `npm run chart` writes them. */
export const GENERATED: ReadonlyMap<string, string> = new Map([
  ['values.schema.json', readableJson(VALUES_SCHEMA)],
  ['files/kafka.json', withVariables(readableJson(kafkaFacts()))],
  ['files/rules.yml', copyOf('ops/prometheus/rules.yml')],
  ['files/dashboard.json', copyOf('ops/grafana/dashboard.json')],
  ['README.md', chartReadme()],
]);
