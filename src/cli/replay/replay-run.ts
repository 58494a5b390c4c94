import type { Command } from 'commander';
import { withEtcd } from '../../adapters/etcd/etcd.ts';
import { wholeTopic, wholeTopics } from '../../adapters/kafka/topics/spans.ts';
import { type EtcdConfig, loadEtcdConfig } from '../../config/config.ts';
import type { Layout } from '../../core/layout.ts';
import { describeError, IdallocError } from '../../errors.ts';
import {
  checkAll,
  readAll,
  replyTopics,
  sinkOf,
  type UndecidedRequests,
  undecidedRequests,
} from '../audit/audit-run.ts';
import { logOf } from '../audit/found.ts';
import type { AuditSink } from '../audit/read.ts';
import { Findings } from '../audit/report.ts';
import { type AuditStore, withStore } from '../audit/store.ts';
import { chosenLayout } from '../chosen.ts';
import { type CliContext, EXIT } from '../context.ts';
import { letterOf } from '../dead-letters/letter-view.ts';
import { journaled } from '../journal/journal-run.ts';
import { type KafkaSession, withKafka } from '../kafka-session.ts';
import type { ConfirmFlags } from '../options.ts';
import { counted, jsonLine, present, timeText } from '../output.ts';
import { ledgerWriter } from '../sequence/sequence-session.ts';
import { confirm, Progress, palette } from '../terminal.ts';
import {
  caughtUp,
  forwardedSince,
  type Prospect,
  prospectOf,
  requestEnds,
  requireEmptyGroup,
  setBack,
  type WantedOffset,
} from './group.ts';
import { Given, type GivenOptions, outcomeJson, outcomeText, type RecordPlace } from './outcome.ts';
import {
  concernedBy,
  type PartitionPlan,
  planJson,
  planText,
  requestsIn,
  requireAnswered,
  sumOf,
  undecidedJson,
  undecidedText,
} from './plan.ts';

export interface ReplayOptions extends ConfirmFlags {
  readonly from?: number;
  readonly offset?: number;
  readonly partition?: number;
  readonly stallMs: number;
  readonly tempDir: string;
  readonly ledgerTopic?: readonly string[];
  readonly dryRun?: true;
  readonly decideRefused?: true;
  /** How much of what is newly given is listed. */
  readonly max: number;
  readonly wait: boolean;
  readonly verify: boolean;
}

interface Session extends KafkaSession {
  readonly options: ReplayOptions;
  /** The workers' layout, from the environment. */
  readonly layout: Layout;
}

/** Resets the group's offsets, after a confirmation, and checks what the workers reply. */
export async function runReplay(context: CliContext, options: ReplayOptions, command: Command): Promise<void> {
  const layout = chosenLayout({}, context.env, command);
  const etcd = options.dryRun === true ? undefined : loadEtcdConfig(context.env);
  await withKafka(context, async (connected) => {
    const session = { ...connected, options, layout };
    const { config, source } = session;
    const decideRefused = options.decideRefused === true;
    // Members still commit, so a plan of their offsets is a guess.
    if (options.dryRun !== true) await requireEmptyGroup(source, config.groupId);
    const prospect = await planOf(session);
    const { plan } = prospect;
    const count = requestsIn(plan);
    const isListed = count > 0 && (decideRefused || options.dryRun === true);
    const undecided = isListed ? await undecidedRequests(session, concernedBy(plan), options) : undefined;
    const planned = { plan: planJson(plan), ...(undecided && { undecided: undecidedJson(undecided) }) };
    if (options.json !== true) {
      context.out(planText(plan, config.groupId));
      if (undecided !== undefined) context.out(undecidedText(undecided, decideRefused));
    }
    const only = (more: object = {}) => {
      if (options.json === true) context.out(jsonLine({ ...planned, ...more }));
    };
    if (count === 0 || etcd === undefined) return only();
    await confirm(context, question(count, undecided), options.yes);
    const ends = await replyEnds(session);
    const requests = await requestEnds(session);
    await moveOffsets(session, etcd, prospect);
    if (!options.wait) {
      context.err("the group's offsets are reset: start the workers\n");
      return only();
    }
    await waitForWorkers(session, plan, count);
    const { count: forwarded, copies } = await waitForForwarded(session, requests, plan);
    if (!options.verify) return only({ read_again: count, forwarded });
    const replayed = { plan, planned, forwarded, copies, ends };
    await withStore(options.tempDir, (store) => verify(session, store, replayed));
  });
}

function question(count: number, undecided: readonly UndecidedRequests[] | undefined): string {
  const more = sumOf(undecided ?? []) === 0 ? '' : `, and decide ${counted(sumOf(undecided ?? []), 'refused one')}`;
  return `Read ${counted(count, 'request')} again${more}?`;
}

/** Sets the offsets back, as a command in the journal. */
async function moveOffsets(
  session: Session,
  etcdConfig: EtcdConfig,
  prospect: Pick<Prospect, 'clusterId' | 'plan' | 'ledgerEnds'>,
): Promise<void> {
  const { context, config, source, options } = session;
  const { from, offset, partition, decideRefused = false } = options;
  const { groupId: group, topics } = config;
  const given = {
    ledger: topics.ledger,
    group,
    from: from === undefined ? undefined : timeText(from),
    offset,
    partition,
    decide_refused: decideRefused,
  };
  const statements = decideRefused ? prospect.plan.map((one) => ({ ...one, below: 0 })) : prospect.plan;
  await withEtcd(etcdConfig.etcd, (etcd) =>
    journaled({ context, etcd, config: etcdConfig }, { command: 'replay', arguments: given }, async (note) => {
      note(`${counted(requestsIn(statements), 'request is', 'requests are')} read again`);
      await setBack(source, config, { ...prospect, plan: statements }, ledgerWriter(source, topics));
    }),
  );
}

/** Plans, and refuses what can't be read again without deciding anew. A dry run says so, and shows the plan. */
export async function planOf(session: Omit<Session, 'layout'>): Promise<Prospect> {
  const { context, config, options } = session;
  const { from, offset, partition } = options;
  const wanted: WantedOffset = (which, atTime) => {
    if (partition !== undefined && partition !== which) return undefined;
    return offset ?? atTime.get(which);
  };
  const prospect = await prospectOf(session, wanted, from ?? 0);
  const { plan, added, partitions, hasRead } = prospect;
  const { groupId, topics } = config;
  if (partition !== undefined && partition >= partitions)
    throw new IdallocError('NOT_FOUND', `'${topics.requests}' has no partition ${partition}: there are ${partitions}`);
  if (!hasRead)
    context.err(
      `group '${groupId}' has read nothing of '${topics.requests}' yet; is it the workers' KAFKA_GROUP_ID?\n`,
    );
  if (added.length > 0 && (partition === undefined || added.includes(partition))) {
    const what = `partitions ${added.join(', ')} of '${topics.requests}' were added and have no ledger: they are left out`;
    context.err(`${what}; what was forwarded from there is read again in its home partition\n`);
  }
  try {
    requireAnswered(plan, options.decideRefused === true);
  } catch (error) {
    if (options.dryRun !== true) throw error;
    context.err(`${describeError(error)}\n`);
  }
  return prospect;
}

async function waitForWorkers(session: Session, plan: readonly PartitionPlan[], count: number): Promise<void> {
  const { context, options } = session;
  context.err("the group's offsets are reset: restart the workers now; waiting for them to read the requests again\n");
  const progress = new Progress(context, 'read again', count);
  await caughtUp(session, plan, options.stallMs, (left) => progress.show(count - left));
  progress.end();
}

/**
 * Requests that workers forward during the replay are answered in their home partitions, after those that already wait
 * there.
 */
async function waitForForwarded(
  session: Session,
  requests: ReadonlyMap<number, number>,
  plan: readonly PartitionPlan[],
): ReturnType<typeof forwardedSince> {
  const { context, options } = session;
  const forwarded = await forwardedSince(session, requests, plan);
  const { count, due } = forwarded;
  if (count === 0) return forwarded;
  context.err(`waiting for ${counted(count, 'forwarded request')} in the partitions that decide them\n`);
  const all = due.reduce((sum, { from, to }) => sum + to - from, 0);
  const progress = new Progress(context, 'read of the partitions', all);
  await caughtUp(session, due, options.stallMs, (left) => progress.show(Math.max(0, all - left)));
  progress.end();
  return forwarded;
}

/** The end offsets of reply topics, dead-letter topic and ledger, before anything is read again. */
async function replyEnds({ source, config }: Session): Promise<ReadonlyMap<string, number>> {
  const { deadLetters, ledger } = config.topics;
  const spans = await wholeTopics(source, [...(await replyTopics(source, config)), deadLetters, ledger]);
  return new Map(spans.map((span) => [logOf(span), span.to]));
}

interface Replayed {
  readonly plan: readonly PartitionPlan[];
  /** The plan for --json. */
  readonly planned: object;
  readonly forwarded: number;
  readonly copies: GivenOptions['copies'];
  /** End offsets before the replay. */
  readonly ends: ReadonlyMap<string, number>;
}

/**
 * Audits the topics, without the requests. Records after `ends` are of the replay, or of new requests; those before are
 * what they must repeat. What was newly given, and what became a dead letter, shows in the records that the audit
 * reads.
 */
async function verify(session: Session, store: AuditStore, replayed: Replayed): Promise<void> {
  const { context, config, source, options } = session;
  const { plan, planned, forwarded, copies, ends } = replayed;
  const { ledger, deadLetters } = config.topics;
  const findings = new Findings(100);
  const isNew = (at: RecordPlace) => at.offset >= (ends.get(logOf(at)) ?? 0);
  const given = new Given({ ledger, plan, copies, isNew, most: options.max });
  const found = sinkOf(store, findings);
  let [numbers, dead] = [0, 0];
  const sink: AuditSink = {
    ...found,
    addNumbers: (one) => {
      if (one.source === 'reply' && isNew(one)) numbers += 1;
      found.addNumbers(one);
    },
    againFrom: isNew,
    record: (record) => {
      given.takeRecord(record);
      // One letter may stand for several requests.
      if (record.topic === deadLetters) dead += letterOf(record).note.offsets?.length ?? 1;
    },
  };
  const letters = await wholeTopic(source, deadLetters);
  const reader = await readAll(session, 'verifying', options, sink, {
    letters: letters.map((span) => ({ ...span, from: ends.get(logOf(span)) ?? span.from })),
  });
  const join = await checkAll(context, store, reader, { find: findings.add, also: (one) => given.takeFound(one) });
  given.end();
  if (findings.total > 0 || (given.requests > 0 && options.decideRefused !== true)) context.setExitCode(EXIT.failed);
  const errors = reader.counts.errorsAgain;
  const outcome = { readAgain: requestsIn(plan), forwarded, dead, errors, join, numbers, findings, given };
  const text = () => outcomeText(outcome, palette(context));
  present(context, options.json, { ...planned, ...outcomeJson(outcome) }, text);
}
