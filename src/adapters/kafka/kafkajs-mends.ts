import { createRequire } from 'node:module';
import kafkajs from 'kafkajs';
import { decodeRecordBatches, RECORD_FORMAT } from './record-batches.ts';

const require = createRequire(import.meta.url);
let mended = false;

/**
 * Mends what kafkajs 2.2.4 does wrong and offers no setting for, once for the process and before the first connection.
 * Each mend reaches inside the package, so it first looks whether the parts are where it knows them, and otherwise leaves
 * everything as it is; tests hold that they are in force.
 */
export function mendKafkajs(): void {
  if (mended) return;
  mended = true;
  stopIdleTimers();
  connectOnce();
  decodeOurselves();
}

interface RequestQueue {
  readonly pending: readonly unknown[];
  scheduleCheckPendingRequests(): void;
}

/**
 * Each connection of kafkajs keeps a timer going that looks for requests held back by throttling. With none held back
 * it asks for a delay before 1970, which Node takes for 1 ms and warns about: 900 wake-ups a second for each idle
 * connection. Nothing is lost by not starting it then, since holding a request back starts it too.
 */
function stopIdleTimers(): void {
  const queue = load<{ readonly prototype?: RequestQueue }>('network/requestQueue/index.js')?.prototype;
  if (typeof queue?.scheduleCheckPendingRequests !== 'function') return;
  const schedule = queue.scheduleCheckPendingRequests;
  queue.scheduleCheckPendingRequests = function (this: RequestQueue) {
    if (Array.isArray(this.pending) && this.pending.length === 0) return;
    schedule.call(this);
  };
}

interface Connection {
  isConnected(): boolean;
  connect(): Promise<boolean>;
}

/** Longer than the client's own limit for a connection, which does not hold when the other side hangs up meanwhile. */
const CONNECT_TIMEOUT_MS = 10_000;

/**
 * Two requests that find a connection closed open a socket each: one of them is never used and never closed, and when
 * it ends, the other is taken for ended.
 */
function connectOnce(): void {
  const connection = load<{ readonly prototype?: Connection }>('network/connection.js')?.prototype;
  if (typeof connection?.connect !== 'function') return;
  const connect = connection.connect;
  const pending = new WeakMap<Connection, Promise<boolean>>();
  connection.connect = function (this: Connection) {
    if (this.isConnected()) return Promise.resolve(true);
    const under = pending.get(this) ?? inTime(connect.call(this)).finally(() => pending.delete(this));
    pending.set(this, under);
    return under;
  };
}

async function inTime(connected: Promise<boolean>): Promise<boolean> {
  const { promise: late, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => reject(new kafkajs.KafkaJSConnectionError('Connection timeout')), CONNECT_TIMEOUT_MS);
  try {
    return await Promise.race([connected, late]);
  } finally {
    clearTimeout(timer);
  }
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
  const decode = load<DecodeMessages>(name);
  const module = decode === undefined ? undefined : require.cache[require.resolve(`kafkajs/src/${name}`)];
  if (typeof decode !== 'function' || module === undefined) return;
  const ours: DecodeMessages = async (decoder) => {
    if (decoder.buffer[decoder.offset + FORMAT_AT] !== RECORD_FORMAT) return decode(decoder);
    const size = decoder.readInt32();
    return decoder.canReadBytes(size) ? decodeRecordBatches(decoder.readBytes(size)) : [];
  };
  module.exports = ours;
}

function load<T>(name: string): T | undefined {
  try {
    return require(`kafkajs/src/${name}`) as T;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'MODULE_NOT_FOUND') return undefined;
    throw error;
  }
}
