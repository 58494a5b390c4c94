// Requests IDs, or numbers of a sequence, with NestJS's ClientKafka and prints them as JSON:
//   node requester.js BROKERS REQUEST_TOPIC COUNT SCHEMAS_DIRECTORY [REQUEST_ID [SEQUENCE]]
//
// ClientKafka waits for replies on the topic `<request topic>.reply`, which must exist. It sends kafka_correlationId,
// kafka_replyTopic and kafka_replyPartition by itself, so this program only has to encode the Avro body.
import 'reflect-metadata';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { Logger } from '@nestjs/common';
import { ClientProxyFactory, Transport } from '@nestjs/microservices';
import avro from 'avsc';
import { firstValueFrom, of, retry, TimeoutError, throwError, timeout } from 'rxjs';

const [brokers, requestTopic, count, schemas, requestId = randomUUID(), sequence] = process.argv.slice(2);
const TRY_MS = 10_000;
/** Sends again after a try without a reply; a refusal is final. */
const afterTimeouts = {
  count: 2,
  delay: (error) => (error instanceof TimeoutError ? of(true) : throwError(() => error)),
};
if (schemas === undefined) {
  process.stderr.write(
    'usage: node requester.js BROKERS REQUEST_TOPIC COUNT SCHEMAS_DIRECTORY [REQUEST_ID [SEQUENCE]]\n',
  );
  process.exit(2);
}

/** IDs have 64 bits and numbers 53, so Avro's long becomes a bigint here. */
const bigintLong = avro.types.LongType.__with({
  fromBuffer: (bytes) => bytes.readBigInt64LE(),
  toBuffer: (value) => {
    const bytes = Buffer.alloc(8);
    bytes.writeBigInt64LE(value);
    return bytes;
  },
  fromJSON: BigInt,
  toJSON: String,
  isValid: (value) => typeof value === 'bigint',
  compare: (a, b) => (a < b ? -1 : a > b ? 1 : 0),
});

function message(name) {
  const schema = JSON.parse(readFileSync(join(schemas, `${name}.avsc`), 'utf8'));
  return avro.Type.forSchema(schema, { registry: { long: bigintLong } });
}

/** Single-object framing: C3 01, the schema's CRC-64-AVRO (little endian), the body. */
const FRAME_BYTES = 10;
const frames = { 'id-request': 'c3010105fdf26cc85d38', 'id-request-2': 'c3015a977f513849f2a0' };

/** The second schema of requests has the sequence. */
function encode() {
  const name = sequence === undefined ? 'id-request' : 'id-request-2';
  const type = message(name);
  const unset = Object.fromEntries(type.fields.map((field) => [field.name, null]));
  const body = sequence === undefined ? { count: BigInt(count) } : { count: BigInt(count), sequence };
  return Buffer.concat([Buffer.from(frames[name], 'hex'), type.toBuffer({ ...unset, ...body })]);
}

/** The IDs, or the numbers of a sequence as its format writes them: INV-{number:6} has at least six digits. */
function decode(value) {
  // The body of a reply without numbers is the same in both schemas.
  const { result } = message('id-reply-2').fromBuffer(value.subarray(FRAME_BYTES));
  const { 'idalloc.IdBatch': batch, 'idalloc.SequenceBatch': numbers } = result;
  if (numbers === undefined) return batch.ranges.flatMap((range) => expand(range, batch.step).map(String));
  const format = numbers.format || '{number}';
  const place = /\{number(?::(\d+))?\}/.exec(format);
  if (place === null) throw new Error(`the format ${format} has no {number}`);
  const [whole, digits = '1'] = place;
  const texts = expand(numbers, numbers.step).map((number) => String(number).padStart(Number(digits), '0'));
  return texts.map((text) => format.replace(whole, text));
}

/** first, first + step, ... */
function expand({ first, count }, step) {
  return Array.from({ length: count }, (_, i) => first + BigInt(i) * step);
}

Logger.overrideLogger(['error']); // the rest would go to standard output
const client = ClientProxyFactory.create({
  transport: Transport.KAFKA,
  options: {
    client: { clientId: 'orders', brokers: brokers.split(',') },
    consumer: { groupId: 'orders-ids' },
    // A new group would start at the end of the topic, which it may learn only after the first reply has arrived.
    subscribe: { fromBeginning: true },
    // Otherwise the value would be decoded as text, which would damage the Avro bytes.
    parser: { keepBinary: true },
  },
});
client.subscribeToResponseOf(requestTopic);
await client.connect();
try {
  // ClientKafka invents a correlation ID for each send. The request ID is the same for each try, so all get the same batch.
  const headers = { 'idalloc-request-id': requestId };
  // The key leads to the partition that decides: the request ID, or the name of the sequence.
  const record = { key: sequence ?? requestId, value: encode(), headers };
  // An IdError arrives as an error of the observable, with its code and message as the text.
  const reply = await firstValueFrom(client.send(requestTopic, record).pipe(timeout(TRY_MS), retry(afterTimeouts)));
  process.stdout.write(`${JSON.stringify(decode(reply))}\n`);
} catch (error) {
  process.stderr.write(`${error instanceof Error ? error.message : JSON.stringify(error)}\n`);
  process.exitCode = 1;
} finally {
  await client.close();
}
