import { KafkaPublisher } from '../adapters/kafka/publisher.ts';
import { ReplyTopics } from '../adapters/kafka/reply-topics.ts';
import { openRegistry } from '../adapters/registry/schema-registry.ts';
import { Slots } from '../async/slots.ts';
import { parseQuotas } from '../codec/quota.ts';
import { replyPolicyOf } from '../codec/reply-policy.ts';
import type { Layout } from '../core/layout.ts';
import { customText } from '../core/layout-choice.ts';
import { renewed } from '../core/secret.ts';
import { wallMs } from '../core/units.ts';
import { ERRORS, type ErrorCode } from '../errors.ts';
import { headKeysOf } from '../identity/bindings.ts';
import { partitionFor } from '../kafka/records/record.ts';
import { EtcdHeads, SharedTransactions } from '../ledger/heads.ts';
import { Accounts } from '../pipeline/accounts.ts';
import { RequestReader } from '../pipeline/intake.ts';
import { JunkLimits } from '../pipeline/junk-limits.ts';
import { NumberDecisions } from '../pipeline/numbers.ts';
import { LARGE_AT_ONCE, type PipelineDeps } from '../pipeline/part.ts';
import type { Allocator, NumbersObserver } from '../pipeline/ports.ts';
import { Quotas } from '../pipeline/quotas.ts';
import { RecordTurns } from '../pipeline/record-turns.ts';
import type { WorkerContext } from './context.ts';
import type { LedgerService } from './ledger-service.ts';

export interface PipelineParts {
  readonly ledger: LedgerService;
  readonly allocator: Allocator;
  /** The UUID of the namespace. Throws NO_IDENTITY before it is known. */
  readonly namespace: () => string;
  /** This worker's share of each quota. */
  readonly quotaShare: () => number;
}

/**
 * What the pipeline works with, what it knows of sequences, and the places in reply topics to which replies are being
 * sent.
 */
export function requestPipeline(context: WorkerContext, parts: PipelineParts) {
  const { config, runtime, cluster, environment, refusals, metrics, lines } = context;
  const { topics, layout, datacenterId } = config;
  const { ledger, allocator } = parts;
  const replyTopics = new ReplyTopics(cluster, runtime);
  const isRevoked = (topic: string) => refusals.isRevoked(topic);
  const publisherOn = (purpose: 'publish' | 'publish large') =>
    new KafkaPublisher({
      cluster,
      runtime,
      topics: replyTopics,
      purpose,
      requestTopic: topics.requests,
      deadLetterTopic: topics.deadLetters,
      isRevoked,
      onSkipped: ({ topic, reason, errorCode, records }) => {
        metrics.addSkippedReplies(reason, records);
        const repetition = { about: topic, times: records };
        lines('warn', { topic, error: errorCode }, 'replies are not sent to a topic that refuses them', repetition);
      },
    });
  const publisher = publisherOn('publish');
  // A reply of a megabyte must not hold up those of small requests on their connection.
  const largePublisher = publisherOn('publish large');
  const schemas = openRegistry(config.registry, topics.requests);
  const numbers = new NumberDecisions({
    heads: new EtcdHeads({
      etcd: environment.etcd,
      transactions: new SharedTransactions(environment.etcd, runtime),
      keysOf: headKeysOf(config),
    }),
    namespace: parts.namespace,
    runtime,
    timeStep: context.timeStep,
    observe: numbersObserverOf(context),
  });
  const quotas = quotasOf(context, parts.quotaShare);
  const deps: PipelineDeps = {
    layout,
    datacenterId,
    maxCount: config.maxCount,
    index: ledger.index,
    ledger: ledger.ledger,
    allocator,
    numbers,
    now: () => wallMs(runtime.wallMs()),
    trustedNow: () => context.clock.trusted(),
    names: config.headers,
    reader: new RequestReader({
      names: config.headers,
      replyPolicy: replyPolicyOf(topics),
      schemas,
      homeOf: (homeKey) => partitionFor(homeKey, ledger.partitions, () => 0),
    }),
    partitions: ledger.partitions,
    renewAfterMs: config.renewAfterMs,
    clockMarginMs: config.clockMarginMs,
    requestTopic: topics.requests,
    deadLetterTopic: topics.deadLetters,
    // Requests wait for a right that was revoked, so its topic is not missing.
    replyTopics: { exists: async (topic) => isRevoked(topic) || (await replyTopics.exists(topic)) },
    publisher,
    largePublisher,
    largeSlots: new Slots(LARGE_AT_ONCE),
    turns: new RecordTurns(runtime),
    junk: new JunkLimits(config.junkRate, runtime),
    accounts: accountsOf(context, quotas, replyTopics),
    quotas,
    schemas,
    customLayout: customLayoutOf(layout),
    observe: observerOf(context),
    timeStep: context.timeStep,
    tracing: context.tracing,
  };
  return { deps, numbers, sending: () => [...publisher.sending(), ...largePublisher.sending()] };
}

/** Dead letters have lines of their own, and quotas one for each prefix. */
const hasOwnLine = (code: ErrorCode) => ERRORS[code].deadLetter || code === 'QUOTA_EXCEEDED';

function observerOf({ metrics, lines }: WorkerContext): PipelineDeps['observe'] {
  return {
    served: ({ issued, replayed, ids, numbers }) => {
      metrics.addRequests('issued', issued);
      metrics.addRequests('replayed', replayed);
      metrics.addIds(ids);
      metrics.addNumbers(numbers);
    },
    replied: (replies) => metrics.addReplies(replies),
    failed: (code, requests, example) => {
      metrics.addRequests('refused', requests);
      metrics.addError(code, requests);
      if (!hasOwnLine(code)) lines('warn', { code, ...example }, `requests were refused: ${code}`, { times: requests });
    },
    deadLettered: (code, records, example) => {
      metrics.addDeadLetters(code, records);
      lines('warn', { code, ...example }, `requests became dead letters: ${code}`, { times: records });
    },
    forwarded: (count) => metrics.addForwarded(count),
    deferred: (count) => metrics.addDeferred(count),
  };
}

/** One line of a kind in a while: a loss of the ledger may reach thousands of sequences. */
function numbersObserverOf({ metrics, lines }: WorkerContext): NumbersObserver {
  return {
    swapped: (outcome) => metrics.addSwap(outcome),
    lost: (loss) => {
      metrics.addSequenceLoss();
      lines('warn', loss, 'the ledger has lost numbers of sequences, which go on behind them', { times: 1 });
    },
    repaired: (partition) =>
      lines('warn', { partition }, 'etcd was behind the ledger with the numbers of sequences, and is no longer'),
    stopped: (partition, sequence) => {
      lines('error', { partition, sequence }, 'the ledger contradicts etcd: the sequence is stopped until a rebuild');
    },
  };
}

/** The quotas that the configuration has now; undefined if it has none. `share` is this worker's share of each. */
function quotasOf({ config, runtime, metrics, lines }: WorkerContext, share: () => number): Quotas | undefined {
  const { quotas } = config;
  if (quotas === undefined) return undefined;
  return new Quotas({
    quotas: renewed(
      () => [quotas()],
      ([text = '']) => parseQuotas(text),
      runtime.monotonicMs,
    ),
    policy: replyPolicyOf(config.topics),
    monotonicMs: runtime.monotonicMs,
    share,
    onExceeded: (prefix) => {
      metrics.addQuotaExceeded(prefix);
      lines('warn', { prefix }, 'requests were refused by a quota', { about: prefix, times: 1 });
    },
  });
}

/** Whoever shares a quota shares an account as well. */
function accountsOf(context: WorkerContext, quotas: Quotas | undefined, known: ReplyTopics): Accounts {
  const { config, runtime, metrics, lines } = context;
  return new Accounts({
    rate: config.debtRate,
    monotonicMs: runtime.monotonicMs,
    accountOf: (replyTopic) => quotas?.prefixFor(replyTopic) ?? (known.isKnown(replyTopic) ? replyTopic : undefined),
    onWaits: (account) => {
      metrics.addIndebted();
      const what = 'requests wait, since those under this name have used more than their share of the worker';
      lines('warn', { account }, what, { about: account, times: 1 });
    },
  });
}

function customLayoutOf(layout: Layout): PipelineDeps['customLayout'] {
  const text = customText(layout);
  return text === undefined ? undefined : { fingerprint: layout.fingerprint, text };
}
