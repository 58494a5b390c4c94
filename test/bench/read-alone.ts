import { readSpans, wholeTopics } from '../../src/adapters/kafka/topics/spans.ts';
import { Cluster } from '../../src/kafka/wire/cluster.ts';
import { kafkaDialer, seedsOf } from '../../src/kafka/wire/settings.ts';
import { RUNTIME } from '../../src/runtime.ts';

/**
 * The baseline of the audit benchmark: reads whole topics as commands do, decodes the record batches, and drops the
 * records.
 */
const [brokers = '', ...topics] = process.argv.slice(2);
const dialer = kafkaDialer({ clientId: 'bench', tls: false });
const cluster = new Cluster({ dialer, seeds: seedsOf(brokers.split(',')), runtime: RUNTIME });
const source = { cluster, runtime: RUNTIME };
await readSpans(source, await wholeTopics(source, topics), {
  signal: new AbortController().signal,
  take: () => undefined,
});
await cluster.close();
