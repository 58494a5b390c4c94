import { readdirSync, readFileSync, rmSync, truncateSync } from 'node:fs';
import { join } from 'node:path';
import { AT, endOfBatch, readInt64 } from '../../src/kafka/records/format.ts';
import type { ProcessServers } from './process-servers.ts';

/**
 * Which records a log loses: those from an offset on, and those that were written in one batch with the first of them.
 */
export interface Tail {
  readonly topic: string;
  readonly partition: number;
  readonly from: number;
}

/**
 * Kills the broker, takes the tail of a partition from its disk and starts it again. That is what a power failure
 * leaves of a log that the operating system had not written yet. Whoever read those records knows what the log does
 * not.
 */
export async function loseTail(servers: ProcessServers, { topic, partition, from }: Tail): Promise<void> {
  await servers.killKafka();
  const directory = join(servers.kafkaData, `${topic}-${partition}`);
  const files = readdirSync(directory);
  const segments = files.filter((name) => name.endsWith('.log'));
  const segment = join(directory, segments.sort().at(-1) ?? '');
  const bytes = readFileSync(segment);
  let at = 0;
  while (at < bytes.length && readInt64(bytes, at) + bytes.readInt32BE(at + AT.lastOffset) < from) {
    const end = endOfBatch(bytes, at);
    if (end === undefined) throw new Error(`${segment} ends within a batch`);
    at = end;
  }
  if (at === bytes.length) throw new Error(`${segment} has no record from ${from} on`);
  truncateSync(segment, at);
  // Without them the broker writes both again from the segment; they name offsets that it no longer has.
  for (const name of files.filter((file) => /\.(index|timeindex|snapshot)$/.test(file))) rmSync(join(directory, name));
  await servers.restartKafka();
}
