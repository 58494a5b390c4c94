import type { Kafka, Message } from 'kafkajs';
import { encodeIdRequest, type IdRequest } from '../../src/codec/id-request.ts';
import type { ErrorCode } from '../../src/errors.ts';
import type { Handmade } from './handmade.ts';
import type { Realm } from './realm.ts';
import type { HandmadeRecord } from './record-bytes.ts';

/** The expected outcome of a record. */
export interface Expected {
  /** The reply: a batch, an error with this code, or none. */
  readonly reply?: 'batch' | ErrorCode;
  /** The code of its dead letter, if any. */
  readonly letter?: ErrorCode;
  /** The dead letter does not contain the record, which is too large for it. */
  readonly bare?: true;
  /** The broker itself refuses the record. */
  readonly refused?: true;
}

export interface PoisonCase extends Expected {
  readonly name: string;
  /** The correlation ID by which its reply is found: the case's name, unless the ID itself is the fault. */
  readonly id: Buffer;
  /** Sends the record; resolves with its offset. */
  readonly send: (partition: number) => Promise<number>;
}

/** A record of one case, sent by an ordinary client. */
type Plain = Pick<Message, 'value' | 'headers' | 'timestamp'>;

export interface PoisonTools {
  readonly realm: Realm;
  readonly kafka: Kafka;
  readonly handmade: Handmade;
  /** Appended to names, so that each round has new requests. */
  readonly round: number;
}

/** Nearly the largest size of a record batch. */
export const LARGE_BYTES = 1_040_000;

/** Builds the cases of one kind. */
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

  /** The reply address in headers, so that an unreadable body does not hide it. */
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
