import { createRequire } from 'node:module';
import kafkajs from 'kafkajs';
import { loadFromKafkajs, mendConnections } from '../../kafkajs-connections.ts';
import { decodeRecordBatches, RECORD_FORMAT } from './record-batches.ts';

const require = createRequire(import.meta.url);
let mended = false;

/**
 * Mends what kafkajs 2.2.4 does wrong and offers no setting for, once for the process and before the first connection:
 * its connections, and how fetched records are decoded. Tests hold that the mends are in force.
 */
export function mendKafkajs(): void {
  if (mended) return;
  mended = true;
  mendConnections();
  decodeOurselves();
  passOverDeadBrokers();
  believeBrokers();
}

interface Decoder {
  readonly buffer: Buffer;
  readonly offset: number;
  readInt32(): number;
  canReadBytes(length: number): boolean;
  readBytes(length: number): Buffer;
}

type DecodeMessages = (decoder: Decoder) => Promise<unknown[]>;

/** From the start of the fetched bytes, behind their length, to the format's number. */
const FORMAT_AT = 4 + 16;

/**
 * Fetched records are decoded by `decodeRecordBatches`. The package's modules take the function that they find when they
 * are loaded, which is at the first fetch.
 */
function decodeOurselves(): void {
  const name = 'protocol/requests/fetch/v4/decodeMessages.js';
  const decode = loadFromKafkajs<DecodeMessages>(name);
  const module = decode === undefined ? undefined : require.cache[require.resolve(`kafkajs/src/${name}`)];
  if (typeof decode !== 'function' || module === undefined) return;
  const ours: DecodeMessages = async (decoder) => {
    if (decoder.buffer[decoder.offset + FORMAT_AT] !== RECORD_FORMAT) return decode(decoder);
    const size = decoder.readInt32();
    return decoder.canReadBytes(size) ? decodeRecordBatches(decoder.readBytes(size)) : [];
  };
  module.exports = ours;
}

interface Broker {
  metadata(topics: readonly string[]): Promise<unknown>;
}

type UseBroker = (node: { readonly nodeId: string; readonly broker: Broker }) => Promise<unknown>;

interface BrokerPool {
  readonly brokers: Readonly<Record<string, unknown>>;
  findBroker(node: { readonly nodeId: string }): Promise<Broker>;
  findConnectedBroker(): Promise<Broker>;
  withBroker(use: UseBroker): Promise<unknown>;
}

/**
 * What any broker can answer is asked of one at random, and failed when that one could not be reached, for as long as it
 * was among those that are known.
 */
function passOverDeadBrokers(): void {
  const pool = loadFromKafkajs<{ readonly prototype?: BrokerPool }>('cluster/brokerPool.js')?.prototype;
  if (typeof pool?.withBroker !== 'function' || typeof pool.findBroker !== 'function') return;
  pool.withBroker = async function (this: BrokerPool, use: UseBroker) {
    const nodeIds = Object.keys(this.brokers);
    const first = Math.floor(Math.random() * nodeIds.length);
    let fault: unknown = new kafkajs.KafkaJSConnectionError('there is no broker to ask');
    let refused = false;
    for (const nodeId of [...nodeIds.slice(first), ...nodeIds.slice(0, first)]) {
      try {
        const broker = await this.findBroker({ nodeId });
        refused = true;
        return await use({ nodeId, broker });
      } catch (error) {
        fault = error;
      }
    }
    if (refused) return null; // which its callers know as the refusal of all
    throw fault;
  };
}

interface Cluster {
  readonly brokerPool: BrokerPool;
  refreshMetadata(): Promise<unknown>;
  fetchTopicsOffset(topics: unknown): Promise<unknown>;
  metadata(of?: { readonly topics?: readonly string[] }): Promise<unknown>;
}

/**
 * A partition's offsets were asked of the leader that was known, for up to five minutes after it had moved; and that a
 * topic has no leader was told as a null that nobody expects, once its metadata had been read before.
 */
function believeBrokers(): void {
  const cluster = loadFromKafkajs<{ readonly prototype?: Cluster }>('cluster/index.js')?.prototype;
  const known = [cluster?.fetchTopicsOffset, cluster?.refreshMetadata, cluster?.metadata];
  if (cluster === undefined || known.some((method) => typeof method !== 'function')) return;
  const { fetchTopicsOffset, metadata } = cluster;
  cluster.fetchTopicsOffset = async function (this: Cluster, topics: unknown) {
    try {
      return await fetchTopicsOffset.call(this, topics);
    } catch {
      await this.refreshMetadata(); // whatever it was: it is asked once more of whoever leads now
      return fetchTopicsOffset.call(this, topics);
    }
  };
  cluster.metadata = async function (this: Cluster, of: { readonly topics?: readonly string[] } = {}) {
    const found = await metadata.call(this, of);
    if (found !== null) return found;
    const broker = await this.brokerPool.findConnectedBroker();
    return broker.metadata(of.topics ?? []);
  };
}
