import type { Kafka, Message } from 'kafkajs';
import { encodeIdRequest, type IdRequest } from '../../src/codec/id-request.ts';
import type { ErrorCode } from '../../src/errors.ts';
import type { Handmade } from './handmade.ts';
import type { Realm } from './realm.ts';
import type { HandmadeRecord } from './record-bytes.ts';

/** What is to come of a record. */
export interface Expected {
  /** To the sender: a batch, an error with this code, or nothing. */
  readonly reply?: 'batch' | ErrorCode;
  /** To the dead-letter topic. */
  readonly letter?: ErrorCode;
  /** The letter does not have the record, which it can't hold. */
  readonly bare?: true;
  /** The broker itself refuses the record. */
  readonly refused?: true;
}

export interface PoisonCase extends Expected {
  readonly name: string;
  /** By which its reply is found; its name, unless that is what is wrong with it. */
  readonly id: Buffer;
  /** Sends it; resolves to its offset. */
  readonly send: (partition: number) => Promise<number>;
}

/** A record of one case, sent as a well-meaning client would send it. */
type Plain = Pick<Message, 'value' | 'headers' | 'timestamp'>;

export interface PoisonTools {
  readonly realm: Realm;
  readonly kafka: Kafka;
  readonly handmade: Handmade;
  /** Appended to names, so that each round makes new requests. */
  readonly round: number;
}

/** Nearly all of what a record batch may have. */
export const LARGE_BYTES = 1_040_000;

/** What the cases of one kind are made with. */
export class Maker {
  readonly cases: PoisonCase[] = [];
  readonly tools: PoisonTools;

  constructor(tools: PoisonTools) {
    this.tools = tools;
  }

  name(name: string): string {
    return `${name}-${this.tools.round}`;
  }

  request(name: string, fields: Partial<IdRequest> = {}): Buffer {
    const replyTopic = this.tools.realm.replyTopic;
    return encodeIdRequest({ count: 2, correlationId: Buffer.from(this.name(name)), replyTopic, ...fields });
  }

  /** Where the sender is told, by headers, so that a body that can't be read does not hide it. */
  addressed(name: string): Record<string, string> {
    return { kafka_correlationId: this.name(name), kafka_replyTopic: this.tools.realm.replyTopic };
  }

  add(name: string, expected: Expected, plain: Plain, id?: Buffer): void {
    const send = async (partition: number) => {
      const [answer] = await this.tools.realm.sendRaw([{ key: name, partition, ...plain }]);
      return Number(answer?.baseOffset);
    };
    this.cases.push({ name: this.name(name), id: id ?? Buffer.from(this.name(name)), send, ...expected });
  }

  handmade(name: string, expected: Expected, record: HandmadeRecord): void {
    const send = async (partition: number) =>
      Number((await this.tools.handmade.records(partition, [record])).baseOffset);
    this.cases.push({ name: this.name(name), id: Buffer.from(this.name(name)), send, ...expected });
  }

  /** A value that is not a request, from a sender with a reply topic. */
  malformed(name: string, value: Buffer | null, code: ErrorCode = 'MALFORMED_REQUEST'): void {
    this.add(name, { reply: code, letter: code }, { value, headers: this.addressed(name) });
  }
}
