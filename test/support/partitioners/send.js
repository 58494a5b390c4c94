// Asks for a batch for each correlation ID, one a line of standard input, by NestJS's ClientKafka with kafkajs' default
// partitioner, and ends when each is acknowledged and has its reply:
//   node send.js [--no-key] BROKERS REQUEST_TOPIC COUNT TRACEPARENT
import 'reflect-metadata';
import { text } from 'node:stream/consumers';
import { parseArgs } from 'node:util';
import { Logger } from '@nestjs/common';
import { ClientKafka } from '@nestjs/microservices';
import { firstValueFrom, timeout } from 'rxjs';

const { values, positionals } = parseArgs({ options: { 'no-key': { type: 'boolean' } }, allowPositionals: true });
const [brokers, requestTopic, count, traceparent] = positionals;
const TIMEOUT_MS = 60_000;

/** Of itself it makes up a correlation ID for each request. */
class NamedRequests extends ClientKafka {
  assignPacketId(packet) {
    return Object.assign(packet, { id: packet.data.headers.name });
  }
}

Logger.overrideLogger(['error']);
const client = new NamedRequests({
  client: { clientId: 'orders', brokers: brokers.split(',') },
  consumer: { groupId: `orders-${traceparent}` },
  subscribe: { fromBeginning: true },
  parser: { keepBinary: true },
});
client.subscribeToResponseOf(requestTopic);
await client.connect();

// The reply to an equal request may arrive before the acknowledgement. A kafkajs producer that is disconnected before
// it connects again and keeps the process alive.
const { producer } = client;
const send = producer.send.bind(producer);
const acknowledged = [];
producer.send = (record) => {
  const sending = send(record);
  acknowledged.push(sending);
  return sending;
};

const ask = (name) => {
  const headers = { name, traceparent, 'idalloc-count': count };
  const key = values['no-key'] ? {} : { key: name };
  return firstValueFrom(client.send(requestTopic, { ...key, value: '', headers }).pipe(timeout(TIMEOUT_MS)));
};
const replies = await Promise.all((await text(process.stdin)).split('\n').map(ask));
await Promise.all(acknowledged);
process.stdout.write(`${replies.length}\n`);
await client.close();
