import { createHash } from 'node:crypto';
import { join } from 'node:path';

export interface WorkerEnvOptions {
  readonly env: NodeJS.ProcessEnv;
  readonly brokers: string;
  readonly endpoints: string;
  readonly stateDir: string;
  /** Number of this worker among those of the checkout. */
  readonly slot: number;
  /** How many brokers the cluster has. */
  readonly brokerCount: number;
}

/**
 * The environment of the worker and of the commands that go with it. What the user has set is kept. A ledger on one
 * broker is weak, so with one broker, and only then, a weak ledger is allowed.
 */
export function workerEnv(options: WorkerEnvOptions): NodeJS.ProcessEnv {
  const alone = { ALLOW_WEAK_LEDGER: '1', TOPIC_REPLICATION_FACTOR: '1' };
  const replyPrefix = options.env.REPLY_TOPIC_PREFIX || 'id.replies.';
  return {
    DATACENTER_ID: '0',
    OPS_HOST: '127.0.0.1',
    API_HOST: '127.0.0.1',
    API_REPLY_TOPIC: `${replyPrefix}http`,
    INDEX_DIR: join(options.stateDir, indexName(options)),
    ...(options.brokerCount === 1 ? alone : {}),
    ...withoutEmpty(options.env),
    KAFKA_BROKERS: options.brokers,
    ETCD_ENDPOINTS: options.endpoints,
  };
}

/** An index belongs to one cluster, so each cluster that the environment names gets its own indexes. */
function indexName({ env, slot }: WorkerEnvOptions): string {
  if (!env.KAFKA_BROKERS) return `index-${slot}`;
  return `index-${createHash('sha256').update(env.KAFKA_BROKERS).digest('hex').slice(0, 8)}-${slot}`;
}

function withoutEmpty(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ''));
}
