import { beforeEach, describe, expect, test } from 'vitest';
import { readSpans } from '../../../src/adapters/kafka/topics/spans.ts';
import { SequenceLog } from '../../../src/cli/sequence/sequence-log.ts';
import { servedPartitions } from '../../../src/cli/sequence/sequence-session.ts';
import { viewSequences } from '../../../src/cli/sequence/sequence-view.ts';
import type { Config } from '../../../src/config/config.ts';
import { bindingsOf } from '../../../src/identity/bindings.ts';
import { namespaceKeys } from '../../../src/identity/keys.ts';
import { AdoptStage } from '../namespace/adopt-stage.ts';
import { LEDGER, TOPICS } from './order-stage.ts';

let stage: AdoptStage;

beforeEach(() => {
  stage = new AdoptStage();
});

describe('the home of a sequence follows from the number of partitions', () => {
  /** Somebody has set REQUEST_PARTITIONS to this; the ledger has 3. */
  async function served(configured = 12): Promise<number> {
    stage.loop.kafka.cluster.growTopic(LEDGER, 3);
    const session = stage.session();
    const topics = { ...session.config.topics, requestPartitions: configured };
    const config = { ...session.config, topics } as Config;
    return await stage.loop.runtime.until(servedPartitions(session.etcd, config, session.source));
  }

  function binds(count: string): void {
    const { config } = stage.session();
    const { key } = bindingsOf(namespaceKeys(config.etcd.prefix, config.datacenterId), config).count;
    stage.etcd.tamper(key, Buffer.from(count));
  }

  test('to which the namespace is bound, though the ledger has more and the shell names another one', async () => {
    binds('2');
    expect(await served()).toBe(2);
  });

  test('that the ledger has, before workers have bound them', async () => {
    expect(await served()).toBe(3);
  });

  test('never from one that no worker wrote', async () => {
    binds('2 or 3');
    await expect(served()).rejects.toMatchObject({
      code: 'NAMESPACE_MISMATCH',
      message: expect.stringMatching(/2 or 3/),
    });
  });
});

test('sequences are listed though a partition is added to the ledger meanwhile', async () => {
  await stage.decides();
  const session = stage.session();
  const { source } = session;
  const { signal } = new AbortController();
  const log = new SequenceLog({
    source,
    topics: TOPICS,
    partitions: 1,
    read: async (spans, take) => {
      await readSpans(source, spans, { signal, take });
      stage.loop.kafka.cluster.growTopic(LEDGER, 2);
      await source.cluster.metadata([LEDGER], 1_000);
    },
  });
  const { views } = await stage.loop.runtime.until(viewSequences({ ...session, log }, false));
  expect(views).toMatchObject([{ sequence: 'invoices', partition: 0, next: 3 }]);
  expect(log.homeOf('invoices')).toBe(0);
});
