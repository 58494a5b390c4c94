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
 * The environment of the worker and of the commands beside it. What the user has set stands. A cluster of one broker
 * can't have what a ledger should have, so there, and only there, less is allowed.
 */
export function workerEnv(options: WorkerEnvOptions): NodeJS.ProcessEnv {
  const alone = { ALLOW_WEAK_LEDGER: '1', TOPIC_REPLICATION_FACTOR: '1' };
  return {
    DATACENTER_ID: '0',
    OPS_HOST: '127.0.0.1',
    API_HOST: '127.0.0.1',
    INDEX_DIR: join(options.stateDir, indexName(options)),
    ...(options.brokerCount === 1 ? alone : {}),
    ...withoutEmpty(options.env),
    KAFKA_BROKERS: options.brokers,
    ETCD_ENDPOINTS: options.endpoints,
  };
}

/** An index belongs to one cluster, so each cluster that the environment names gets indexes of its own. */
function indexName({ env, slot }: WorkerEnvOptions): string {
  if (!env.KAFKA_BROKERS) return `index-${slot}`;
  return `index-${createHash('sha256').update(env.KAFKA_BROKERS).digest('hex').slice(0, 8)}-${slot}`;
}

function withoutEmpty(env: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(env).filter(([, value]) => value !== ''));
}
