import { writeFileSync } from 'node:fs';
import { KafkajsLink } from '../../src/kafka/wire/kafkajs-link.ts';
import type { ApiName, RequestOf, ResponseOf } from '../../src/kafka/wire/port.ts';

/**
 * Imported into a worker (`node --import`): at its end it writes to BENCH_METADATA_FILE how many topics each of its
 * calls for metadata named, as a list in JSON.
 */
const { BENCH_METADATA_FILE: file = '' } = process.env;
const named: number[] = [];
const { call } = KafkajsLink.prototype;
KafkajsLink.prototype.call = function counted<A extends ApiName>(name: A, request: RequestOf<A>) {
  if (name === 'metadata') named.push((request as RequestOf<'metadata'>).topics.length);
  return call.call(this, name, request) as Promise<ResponseOf<A>>;
};
process.once('exit', () => writeFileSync(file, JSON.stringify(named)));
