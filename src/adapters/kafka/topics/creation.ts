import { retrying } from '../../../async/retrying.ts';
import { IdallocError } from '../../../errors.ts';
import { isUnusableTopic } from '../../../kafka/wire/error-codes.ts';
import { KafkaError } from '../../../kafka/wire/kafka-error.ts';
import type { CreateTopicsResponse } from '../../../kafka/wire/topic-apis.ts';
import { type Brokers, CALL_TIMEOUT_MS, PATIENT } from '../brokers.ts';
import type { PlannedTopic } from './plan.ts';

/** How long the brokers may take to create topics, and how long to wait for their response. */
const CREATE_TIMEOUT_MS = 5_000;
const CREATE_RESPONSE_MS = CREATE_TIMEOUT_MS + 1_000;

type Sent = Pick<PlannedTopic, 'name' | 'partitions' | 'configs'>;

/**
 * Creates all of them in one call. Returns the created ones, including those of an earlier attempt whose response was
 * lost.
 */
export function createTopics(brokers: Brokers, planned: readonly Sent[], replicas: number): Promise<readonly string[]> {
  let unanswered = false;
  return retrying(brokers.runtime, PATIENT, async () => {
    const mayHaveMade = unanswered;
    unanswered = true;
    const { topics } = await askController(brokers, planned, replicas, false);
    for (const topic of topics) if (topic.errorCode !== 'TOPIC_ALREADY_EXISTS') requireCreated(topic);
    const made = new Set(topics.flatMap(({ name, errorCode }) => (errorCode && !mayHaveMade ? [] : [name])));
    return planned.map(({ name }) => name).filter((name) => made.has(name));
  });
}

async function askController(brokers: Brokers, planned: readonly Sent[], replicas: number, validateOnly: boolean) {
  const topics = planned.map(({ name, partitions, configs }) => ({ name, partitions, replicas, configs }));
  const { controllerId } = await brokers.cluster.metadata([], CALL_TIMEOUT_MS);
  return await brokers.cluster.call<CreateTopicsResponse>(controllerId, 'control', CREATE_RESPONSE_MS, (link) =>
    link.call('createTopics', { topics, timeoutMs: CREATE_TIMEOUT_MS, validateOnly }),
  );
}

function requireCreated({ name, errorCode, message }: CreateTopicsResponse['topics'][number]): void {
  if (errorCode === undefined) return;
  const hint = errorCode === 'POLICY_VIOLATION' ? '; for a managed service: idalloc topics init --managed' : '';
  throw new KafkaError(errorCode, `topic ${name} was not created: ${message ?? errorCode}${hint}`);
}

/** Topics with the settings that a managed service accepts. */
export interface Settable {
  readonly topics: readonly PlannedTopic[];
  /** The settings that it refuses, with its reasons, one line each. */
  readonly refused: readonly string[];
}

/** With these, brokers and their policies object to a setting. */
const OBJECTIONS: ReadonlySet<string | undefined> = new Set(['INVALID_CONFIG', 'INVALID_REQUEST', 'POLICY_VIOLATION']);

/**
 * What of the plan a managed service accepts.
 *
 * Each service fixes other settings, and what its answer says of them is text for people. So each setting is tried by
 * itself: the service is asked to validate topics that have nothing else. One that it refuses is left as the service
 * has it, or gets the first of its alternatives that is accepted. Nothing is created, and whether the topics will do
 * is not judged here.
 *
 * Rejects with the service's reason when it refuses the topics without any setting, and with TOPIC_INVALID when topics
 * exist after a mere validation.
 */
export async function settableOf(
  brokers: Brokers,
  planned: readonly PlannedTopic[],
  replicas: number,
): Promise<Settable> {
  if (planned.length === 0) return { topics: [], refused: [] };
  const validate = (topics: readonly Sent[]) => validated(brokers, topics, replicas);
  for (const topic of await validate(planned.map((one) => ({ ...one, configs: {} })))) requireCreated(topic);
  await requireAbsent(brokers, planned);
  const accepted = new Map(planned.map(({ name }) => [name, new Map<string, string>()]));
  const refused: string[] = [];
  for (const key of new Set(planned.flatMap(({ configs }) => Object.keys(configs)))) {
    const reasons = new Map<string, string>();
    const isOpen = ({ name, configs }: PlannedTopic) => key in configs && accepted.get(name)?.has(key) !== true;
    for (let at = 0; ; at += 1) {
      const trials = planned.filter(isOpen).flatMap((topic) => {
        const value = [topic.configs[key], ...(topic.alternatives?.[key] ?? [])][at];
        return value === undefined ? [] : [{ ...topic, configs: { [key]: value } }];
      });
      if (trials.length === 0) break;
      const answers = await validate(trials);
      for (const { name, configs } of trials) {
        const answer = answers.find((one) => one.name === name);
        if (answer === undefined) accepted.get(name)?.set(key, configs[key] ?? '');
        else if (!reasons.has(name)) reasons.set(name, answer.message ?? `${answer.errorCode}`);
      }
    }
    for (const [name, reason] of reasons) {
      const value = planned.find((one) => one.name === name)?.configs[key];
      const instead = accepted.get(name)?.get(key) ?? "the service's own value";
      refused.push(`${name}: ${key}=${value}, so ${instead} is used (${reason})`);
    }
  }
  const topics = planned.map((one) => ({ ...one, configs: Object.fromEntries(accepted.get(one.name) ?? []) }));
  return { topics, refused };
}

/** The topics to which the service objects, with its reasons. Rejects for any other error. */
function validated(brokers: Brokers, planned: readonly Sent[], replicas: number) {
  return retrying(brokers.runtime, PATIENT, async () => {
    const { topics } = await askController(brokers, planned, replicas, true);
    const failed = topics.filter(({ errorCode }) => errorCode !== undefined && errorCode !== 'TOPIC_ALREADY_EXISTS');
    for (const topic of failed) if (!OBJECTIONS.has(topic.errorCode)) requireCreated(topic);
    return failed;
  });
}

/** A service that does not know validation would have created topics without any of the settings. */
async function requireAbsent({ cluster, runtime }: Brokers, planned: readonly PlannedTopic[]): Promise<void> {
  const names = planned.map(({ name }) => name);
  const { topics } = await retrying(runtime, PATIENT, () => cluster.metadata(names, CALL_TIMEOUT_MS));
  const made = topics.filter(({ errorCode }) => !isUnusableTopic(errorCode)).map(({ name }) => `'${name}'`);
  if (made.length === 0) return;
  throw new IdallocError(
    'TOPIC_INVALID',
    `${made.join(', ')} appeared while topics were only validated: if no other process has created them, the service ` +
      "can't validate; delete them, and create the topics with the service's own tools",
  );
}
