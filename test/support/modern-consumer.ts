import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { Decoder, Encoder } from '../../src/kafka/wire/kafkajs-modules.ts';

const CONSUMER_GROUP_HEARTBEAT = { key: 68, version: 0 } as const;
const OFFSET_COMMIT = { key: 8, version: 9 } as const;
const CLIENT_ID = 'modern-consumer';
const REBALANCE_MS = 10_000;
const HEARTBEAT_MS = 100;
const UUID_WORDS = 4;
const LEAVES = -1;
const NO_TAGS = 0;

/**
 * A consumer of Kafka's new group protocol (KIP-848), as far as its coordinator sees it: it heartbeats and commits, and
 * reads nothing. It owns whatever it is assigned, and says so in the next heartbeat: a member that keeps silent about
 * partitions that were taken from it is removed from the group after REBALANCE_MS. Its requests have the compact
 * format, in which counts and lengths are one more, and each struct ends with tagged fields.
 */
export class ModernConsumer implements AsyncDisposable {
  readonly #socket: Socket;
  readonly #groupId: string;
  readonly #topic: string;
  readonly #received: Buffer[] = [];
  #memberId = '';
  #epoch = 0;
  #heartbeats = Promise.resolve();
  #hasLeft = false;
  #calls = 0;
  /** What it owns, by topic ID, if the coordinator has not been told. */
  #owned: readonly { readonly topicId: readonly number[]; readonly partitions: readonly number[] }[] | undefined;

  private constructor(socket: Socket, groupId: string, topic: string) {
    this.#socket = socket;
    this.#groupId = groupId;
    this.#topic = topic;
    socket.on('data', (chunk) => this.#received.push(chunk));
  }

  /** Joins over the coordinator of the group, and stays until it leaves. */
  static async join(broker: string, groupId: string, topic: string): Promise<ModernConsumer> {
    const [host = '', port = ''] = broker.split(':');
    const socket = connect(Number(port), host);
    await once(socket, 'connect');
    const consumer = new ModernConsumer(socket, groupId, topic);
    await consumer.#heartbeat();
    consumer.#heartbeats = consumer.#keepAlive();
    return consumer;
  }

  /** Commits these offsets, as an automatic commit does: without metadata. */
  async commit(offsets: ReadonlyMap<number, number>): Promise<void> {
    this.#hasLeft = true; // one request at a time
    await this.#heartbeats;
    const request = this.#request(OFFSET_COMMIT);
    request.writeUVarIntString(this.#groupId).writeInt32(this.#epoch).writeUVarIntString(this.#memberId);
    request
      .writeUVarIntString(null)
      .writeUVarInt(2)
      .writeUVarIntString(this.#topic)
      .writeUVarInt(offsets.size + 1);
    for (const [partition, offset] of offsets) {
      request.writeInt32(partition).writeInt64(offset).writeInt32(-1).writeUVarIntString('').writeInt8(NO_TAGS);
    }
    request.writeInt8(NO_TAGS).writeInt8(NO_TAGS);
    const response = await this.#answer(request);
    response.readInt32();
    const codes = response.readUVarIntArray((topic) => {
      topic.readUVarIntString();
      const partitions = topic.readUVarIntArray((partition) => {
        partition.readInt32();
        const code = partition.readInt16();
        partition.readTaggedFields();
        return code;
      });
      topic.readTaggedFields();
      return partitions ?? [];
    });
    const failed = codes?.flat().find((code) => code !== 0);
    if (failed !== undefined) throw new Error(`the commit failed with ${failed}`);
    this.#hasLeft = false;
    this.#heartbeats = this.#keepAlive();
  }

  /** Leaves the group. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#hasLeft = true;
    await this.#heartbeats;
    if (this.#epoch !== LEAVES) {
      this.#epoch = LEAVES;
      await this.#heartbeat();
    }
    this.#socket.destroy();
  }

  async #keepAlive(): Promise<void> {
    while (!this.#hasLeft) {
      await this.#heartbeat();
      await sleep(HEARTBEAT_MS);
    }
  }

  async #heartbeat(): Promise<void> {
    const isFirst = this.#epoch === 0;
    const request = this.#request(CONSUMER_GROUP_HEARTBEAT);
    request.writeUVarIntString(this.#groupId).writeUVarIntString(this.#memberId).writeInt32(this.#epoch);
    request
      .writeUVarIntString(null)
      .writeUVarIntString(null)
      .writeInt32(isFirst ? REBALANCE_MS : -1);
    if (isFirst) request.writeUVarInt(2).writeUVarIntString(this.#topic);
    else request.writeUVarInt(0);
    request.writeUVarIntString(null);
    const owned = isFirst ? [] : this.#owned;
    this.#owned = undefined;
    request.writeUVarInt(owned === undefined ? 0 : owned.length + 1);
    for (const { topicId, partitions } of owned ?? []) {
      for (const word of topicId) request.writeInt32(word);
      request.writeUVarInt(partitions.length + 1);
      for (const partition of partitions) request.writeInt32(partition);
      request.writeInt8(NO_TAGS);
    }
    request.writeInt8(NO_TAGS);
    const response = await this.#answer(request);
    response.readInt32();
    const code = response.readInt16();
    const message = response.readUVarIntString();
    if (code !== 0) throw new Error(`the heartbeat failed with ${code}: ${message}`);
    this.#memberId = response.readUVarIntString() ?? this.#memberId;
    const epoch = response.readInt32();
    response.readInt32();
    if (this.#epoch === LEAVES) return;
    this.#epoch = epoch;
    const [hasAssignment] = response.readBytes(1);
    if (hasAssignment !== 1) return;
    const assigned = response.readUVarIntArray((topic) => {
      const topicId = Array.from({ length: UUID_WORDS }, () => topic.readInt32());
      const partitions = topic.readUVarIntArray(() => topic.readInt32()) ?? [];
      topic.readTaggedFields();
      return { topicId, partitions };
    });
    this.#owned = assigned ?? [];
  }

  #request({ key, version }: { readonly key: number; readonly version: number }): Encoder {
    this.#calls += 1;
    const header = new Encoder().writeInt16(key).writeInt16(version).writeInt32(this.#calls).writeString(CLIENT_ID);
    return header.writeInt8(NO_TAGS);
  }

  /** Sends a request; returns the response after its header. One at a time. */
  async #answer(request: Encoder): Promise<Decoder> {
    const size = Buffer.alloc(4);
    size.writeInt32BE(request.buffer.length);
    this.#socket.write(Buffer.concat([size, request.buffer]));
    for (;;) {
      const all = Buffer.concat(this.#received);
      if (all.length >= 4 && all.length >= 4 + all.readInt32BE()) {
        this.#received.splice(0);
        const decoder = new Decoder(all.subarray(4));
        decoder.readInt32();
        decoder.readTaggedFields();
        return decoder;
      }
      await once(this.#socket, 'data');
    }
  }
}
