import { createRequire } from 'node:module';
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
