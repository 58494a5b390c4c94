import type { Brokers } from '../../../src/adapters/kafka/brokers.ts';
import { isLinkError } from '../../../src/kafka/wire/error-codes.ts';
import { KafkaError, kafkaErrorCode } from '../../../src/kafka/wire/kafka-error.ts';
import type { MetadataResponse, TopicMetadata } from '../../../src/kafka/wire/topic-apis.ts';
import { type Answers, scriptedLink } from '../../support/scripted-link.ts';

export const CONTROLLER = 2;

export interface Script {
  /** The scripted answers of each broker. */
  readonly link: (node: number) => Answers;
  readonly nodes?: readonly number[];
}

export interface ScriptedBrokers extends Brokers {
  /** The brokers that were called, in order. */
  readonly called: number[];
  /** The groups whose coordinators were called, in order. */
  readonly asked: string[];
  /** Virtual time, which advances only by sleeping. */
  readonly nowMs: () => number;
}

/** Brokers with scripted answers, in virtual time. */
export function scriptedBrokers({ link, nodes = [1, 2, 3] }: Script): ScriptedBrokers {
  let nowMs = 0;
  const called: number[] = [];
  const asked: string[] = [];
  const linkTo = (node: number) => scriptedLink(link(node));
  return {
    called,
    asked,
    nowMs: () => nowMs,
    runtime: {
      monotonicMs: () => nowMs,
      sleep: async (delayMs) => {
        nowMs += delayMs;
      },
    },
    cluster: {
      metadata: async (topics) =>
        topics.length === 0 ? metadataAnswer([], nodes) : linkTo(nodes[0] ?? 0).call('metadata', { topics }),
      call: async (node, _purpose, _timeoutMs, use) => {
        called.push(node);
        return use(linkTo(node));
      },
      callAny: async (_timeoutMs, use) => {
        let last: unknown;
        for (const node of nodes) {
          called.push(node);
          try {
            return await use(linkTo(node));
          } catch (error) {
            if (!isLinkError(kafkaErrorCode(error))) throw error;
            last = error;
          }
        }
        throw last;
      },
      callCoordinator: async (groupId, _purpose, _timeoutMs, use) => {
        called.push(CONTROLLER);
        asked.push(groupId);
        return use(linkTo(CONTROLLER));
      },
    },
  };
}

export function metadataAnswer(
  topics: readonly TopicMetadata[],
  nodes: readonly number[] = [1, 2, 3],
): MetadataResponse {
  const brokers = nodes.map((nodeId) => ({ nodeId, host: `broker-${nodeId}`, port: 9092 }));
  return { throttleMs: 0, clusterId: 'the-cluster', controllerId: CONTROLLER, brokers, topics };
}

/** A call that fails with this fault. */
export function failing(errorCode: string): () => Promise<never> {
  return async () => {
    throw new KafkaError(errorCode, `it failed: ${errorCode}`);
  };
}
