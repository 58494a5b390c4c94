import type { Admin, Producer } from 'kafkajs';
import { readClock, sleep } from './adapters/clock.ts';
import { type KafkaSettings, kafkaClient, unreachable } from './adapters/kafka/client.ts';
import { createPartitioner } from './adapters/kafka/partitioner.ts';
import { workerTopics } from './adapters/kafka/topic-plan.ts';
import { checkTopics, type TopicsReport } from './adapters/kafka/topics.ts';
import { ReignAllocator } from './allocator.ts';
import { openApi } from './api-side.ts';
import type { Config } from './config.ts';
import { type GateReason, isClockFault } from './core/gate.ts';
import { IdallocError } from './errors.ts';
import { Gatekeeper } from './gatekeeper.ts';
import { GuardedClock } from './guarded-clock.ts';
import type { ApiDoor } from './http/door.ts';
import { IdentityHolder, UNBORN } from './identity-holder.ts';
import { startLedger } from './ledger-side.ts';
import { kafkaLogCreator, type Log } from './log.ts';
import { Membership } from './membership.ts';
import type { Metrics } from './metrics.ts';
import { createMember } from './request-side.ts';
import { startWitness } from './witness-side.ts';

/** A worker at work; disposing it finishes what is in hand, leaves the group and gives the identity back. */
export interface Worker extends AsyncDisposable {
  /** Rejects when the worker can't go on; pending otherwise. */
  readonly done: Promise<void>;
  health(): { readonly gate: 'open' | GateReason };
}

/**
 * Wires a worker and starts it. Resolves once it has what it needs from Kafka; etcd may still be out of reach, and the
 * gate tells so. Rejects with TOPIC_INVALID, LEDGER_WEAK, LEDGER_RETENTION, INDEX_LOCKED, INDEX_UNUSABLE,
 * KAFKA_UNAVAILABLE, CONFIG_INVALID when the brokers refuse the login.
 *
 * Each part is put on the stack when it starts, so that a start that fails half-way, and the stop, undo it in reverse.
 */
export async function startWorker(config: Config, deps: { log: Log; metrics: Metrics }): Promise<Worker> {
  await using stack = new AsyncDisposableStack();
  const { log, metrics } = deps;
  const failed = Promise.withResolvers<void>();
  failed.promise.catch(() => undefined); // whoever watches `done` learns of it, also when it comes before that
  let membership: Membership | undefined;
  let identity: IdentityHolder | undefined;
  let api: ApiDoor | undefined;
  const gate = new Gatekeeper({
    now: () => readClock().mono,
    log,
    onChange: (reason) => {
      metrics.setGate(reason ?? 'open');
      membership?.gateChanged();
      api?.gateChanged(reason);
    },
  });
  metrics.setGate('STARTING');
  const clock = new GuardedClock(readClock);
  const allocator = new ReignAllocator({
    layout: config.layout,
    datacenterId: config.datacenterId,
    readClock: () => clock.read(),
    authority: (now) => identity?.authority(now) ?? UNBORN,
    random: Math.random,
    sleep,
  });
  api = await openApi({ config, log, metrics, gate, allocator });
  const closeApi = async () => api?.stop();
  stack.defer(closeApi);
  const kafka = kafkaClient(config.kafka, kafkaLogCreator(log));
  const admin = await connected(stack, kafka.admin(), config.kafka);
  const report = await checkedTopics(admin, config, log);
  const sender = kafka.producer({ createPartitioner, allowAutoTopicCreation: false });
  const producer = await connected(stack, sender, config.kafka);
  const fail = (error: unknown) => failed.reject(error);
  const tools = { config, log, metrics, kafka, admin, producer, clock, gate, fail };

  const [ledger, witness] = await Promise.all([startLedger(tools, report, stack), startWitness(tools, stack)]);
  const askBrokers = () => ledger.log.askClocks();
  const holder = stack.use(new IdentityHolder({ config, log, clock, gate, metrics, witness, askBrokers, fail }));
  identity = holder;
  stack.defer(closeApi); // what is under way is answered before the identity is given back
  membership = new Membership({
    createMember: createMember(tools, { ...ledger, identity: holder, allocator }, stack),
    isOpen: () => gate.reason() === undefined,
    graceOver: () => gate.graceOver(config.gateGraceMs),
    isClockWrong: () => isClockFault(gate.reason()),
    log,
  });
  const joined = membership;
  stack.defer(() => joined.stop());
  stack.defer(() => gate.close('process', 'STOPPING'));
  gate.clear('process');

  const owned = stack.move();
  return {
    done: failed.promise,
    health: () => ({ gate: gate.reason() ?? 'open' }),
    [Symbol.asyncDispose]: () => owned.disposeAsync(),
  };
}

async function connected<T extends Admin | Producer>(
  stack: AsyncDisposableStack,
  client: T,
  settings: KafkaSettings,
): Promise<T> {
  stack.defer(() => client.disconnect());
  try {
    await client.connect();
    return client;
  } catch (error) {
    throw unreachable(error, settings);
  }
}

/** The topics as they are, when a worker may start on them; else the first fault's code with all their messages. */
async function checkedTopics(admin: Admin, config: Config, log: Log): Promise<TopicsReport> {
  const report = await checkTopics(admin, config.topics, workerTopics(config.topics));
  for (const { code, message } of report.warnings) log.warn({ code }, message);
  const [first] = report.faults;
  if (first === undefined) return report;
  throw new IdallocError(first.code, report.faults.map(({ message }) => message).join('; '));
}
