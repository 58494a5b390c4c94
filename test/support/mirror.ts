import { wholeTopic } from '../../src/adapters/kafka/topics/spans.ts';
import type { Seen } from './followed.ts';
import type { Realm } from './realm.ts';

export interface MirrorOptions {
  /** By default those that a copy of the site needs: ledger, requests and witness. */
  readonly topics?: readonly string[];
  /**
   * How many decisions or requests at the end of each partition have not been copied yet, for each topic that lags; nor
   * what is behind the first of them. Markers don't count, since workers write them when they like.
   */
  readonly lag?: Readonly<Record<string, number>>;
  /** How many records at the start of each partition had been trimmed from the source: all others get lower offsets. */
  readonly shift?: Readonly<Record<string, number>>;
}

/** Brokers take this many of our records in one request. */
const AT_ONCE = 500;

/**
 * Copies the records of topics to the realm of the same names on another cluster, with keys, values, headers and
 * timestamps, as MirrorMaker and backup tools do. The topics there must be empty. A topic with LogAppendTime dates its
 * records anew, as it does for those tools.
 */
export async function mirrorTopics(from: Realm, to: Realm, options: MirrorOptions = {}): Promise<void> {
  const { topics = [from.ledgerTopic, from.requestTopic, from.witnessTopic], lag = {}, shift = {} } = options;
  for (const topic of topics) await mirrorTopic(from, to, topic, { lag: lag[topic] ?? 0, shift: shift[topic] ?? 0 });
}

async function mirrorTopic(from: Realm, to: Realm, topic: string, by: { lag: number; shift: number }): Promise<void> {
  for (const [partition, records] of Map.groupBy(await recordsOf(from, topic), (one) => one.partition)) {
    const missing = records.filter(({ message: { key } }) => key).slice(by.lag === 0 ? records.length : -by.lag);
    const copied = records.slice(by.shift, missing[0] && records.indexOf(missing[0]));
    for (let at = 0; at < copied.length; at += AT_ONCE) {
      const messages = copied.slice(at, at + AT_ONCE).map(({ message: { key, value, headers, timestamp } }) => {
        return { partition, key, value, timestamp, ...(headers === undefined ? {} : { headers }) };
      });
      const [answer] = await to.sendRaw(messages, topic);
      if (answer?.errorCode !== 0) throw new Error(`${topic}/${partition} was not copied: ${JSON.stringify(answer)}`);
    }
  }
}

/** The records that a topic has now, in the order of each partition. */
export async function recordsOf(realm: Realm, topic: string): Promise<readonly Seen[]> {
  const spans = (await wholeTopic(realm.source, topic)).filter((one) => one.to > one.from);
  await using followed = await realm.follow(topic);
  await followed.until('all records', (seen) => {
    const isRead = (partition: number, to: number) =>
      seen.some((one) => one.partition === partition && one.offset >= to - 1);
    return spans.every(({ partition, to }) => isRead(partition, to));
  });
  return followed.seen;
}
