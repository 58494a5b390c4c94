import { randomUUID } from 'node:crypto';
import type { Kafka, Producer } from 'kafkajs';
import { sleep } from './adapters/clock.ts';
import { WitnessFollower, WitnessReader } from './adapters/kafka/witness-reader.ts';
import { WitnessTopic } from './adapters/kafka/witness-topic.ts';
import type { WitnessPort } from './identity/ports.ts';
import type { Log } from './log.ts';
import { ReaderKeeper } from './reader-keeper.ts';

/** What following the witness topic takes. */
export interface WitnessSideOptions {
  readonly config: {
    readonly topics: { readonly witness: string };
    readonly groupId: string;
    readonly datacenterId: number;
    readonly timing: { readonly refuseAfterMs: number };
  };
  readonly kafka: Kafka;
  readonly producer: Producer;
  readonly log: Log;
  readonly fail: (error: unknown) => void;
}

const MAX_CALL_MS = 4_000;

/** The witness topic, followed from now on until the stack is disposed. */
export async function startWitness(options: WitnessSideOptions, stack: AsyncDisposableStack): Promise<WitnessPort> {
  const { config, kafka, producer, log, fail } = options;
  const { groupId, datacenterId, timing } = config;
  // Each heartbeat waits for the topic: without an answer it must still come to its end well before the own deadline.
  const callLimitMs = Math.min(MAX_CALL_MS, timing.refuseAfterMs / 2);
  const topic = config.topics.witness;
  const follower = new WitnessFollower(datacenterId);
  const reader = new ReaderKeeper({
    what: 'witness topic',
    // A group of its own for each reader: the one before may be a member of its group for a while yet.
    create: (onCrash) =>
      new WitnessReader({ kafka, topic, groupId: `${groupId}.witness.${randomUUID()}`, follower, onCrash }),
    sleep,
    monotonicMs: () => performance.now(),
    log,
    fail,
  });
  stack.defer(() => reader.stop());
  await reader.start();
  const restartReader = () => reader.restart(0);
  return new WitnessTopic({ producer, topic, datacenterId, follower, restartReader, callLimitMs });
}
