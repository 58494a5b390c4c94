import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Command } from 'commander';
import { type Source, type Span, wholeTopic, wholeTopics } from '../../adapters/kafka/topics/offsets.ts';
import type { KafkaConfig } from '../../config/config.ts';
import type { Layout } from '../../core/layout.ts';
import { IdallocError } from '../../errors.ts';
import { chosenLayout } from '../chosen-layout.ts';
import { type CliContext, EXIT } from '../context.ts';
import { type KafkaSession, readShown, withKafka } from '../kafka-session.ts';
import type { LayoutOptions } from '../layout-options.ts';
import { present } from '../present.ts';
import { Progress, palette } from '../terminal.ts';
import type { JoinCounts } from './check.ts';
import { type CheckedReader, checks } from './checks.ts';
import { AuditReader, type AuditSink } from './read.ts';
import { auditJson, auditText, Findings } from './report.ts';
import { type UndecidedRequests, undecidedIn } from './request-join.ts';
import { type AuditStore, withStore } from './store.ts';

export interface AuditOptions extends LayoutOptions {
  readonly replyTopic?: readonly string[];
  readonly ledgerTopic?: readonly string[];
  readonly maxFindings: number;
  readonly tempDir: string;
  readonly json?: true;
}

/** Reads ledger and replies, compares them, and prints what was found. */
export async function runAudit(context: CliContext, options: AuditOptions, command: Command): Promise<void> {
  const layout = chosenLayout(options, context.env, command);
  const findings = new Findings(options.maxFindings);
  await withStore(options.tempDir, async (store) => {
    const reader = await withKafka(context, (session) =>
      readAll({ ...session, layout }, 'reading', options, sinkOf(store, findings)),
    );
    const join = await checkAll(context, store, reader, findings);
    if (findings.total > 0) context.setExitCode(EXIT.failed);
    const { counts, losses } = reader;
    const text = () => auditText(counts, join, losses.all, findings, palette(context));
    present(context, options.json, auditJson(counts, join, losses.all, findings), text);
  });
}

/** Takes what a reader finds. */
export function sinkOf(store: AuditStore, findings: Findings): AuditSink {
  return {
    add: (found) => store.add(found),
    addLetter: (letter) => store.addLetter(letter),
    addNumbers: (numbers) => store.numbers.add(numbers),
    find: findings.add,
  };
}

interface AuditSession extends KafkaSession {
  /** A layout to check batches against besides the presets. */
  readonly layout: Layout;
}

/** Reads ledgers and reply topics up to their ends at the time of the call. `what` names the work in the progress. */
export async function readAll(
  session: AuditSession,
  what: string,
  { replyTopic = [], ledgerTopic = [] }: Pick<AuditOptions, 'replyTopic' | 'ledgerTopic'>,
  sink: AuditSink,
): Promise<AuditReader> {
  const { config, source, layout } = session;
  // The reply topics first: the entry of a reply is appended before it, so the ledgers then have the entries of all these replies.
  const topics = replyTopic.length > 0 ? replyTopic : await replyTopics(source, config);
  const replies = await wholeTopics(source, topics);
  const ledger = await wholeTopics(source, [config.topics.ledger, ...ledgerTopic]);
  // Then the witnesses: a reservation is witnessed before any of its IDs is in the ledger.
  const witness = await wholeTopics(source, [config.topics.witness]);
  const { clockMarginMs, headers: names } = config;
  const reader = new AuditReader({ ledger, replies, witness }, sink, { clockMarginMs, layout, names });
  await readShown(session, [...ledger, ...replies, ...witness], what, (record) => void reader.take(record));
  reader.end();
  return reader;
}

/** Some offsets of a request partition. */
type RequestRange = Pick<Span, 'partition' | 'from' | 'to'>;

/** The valid requests of these ranges that the ledger has not decided, by sequence and reply topic. */
export async function undecidedRequests(
  session: AuditSession,
  ranges: readonly RequestRange[],
  { tempDir }: Pick<AuditOptions, 'tempDir'>,
): Promise<UndecidedRequests[]> {
  const { config, source, layout } = session;
  // The ledger last, so that what is decided meanwhile is known.
  const requests = ranges.map((range) => ({ topic: config.topics.requests, ...range }));
  return await withStore(tempDir, async (store) => {
    const ledger = await wholeTopic(source, config.topics.ledger);
    const sink = { ...sinkOf(store, new Findings(0)), addNumbers: () => undefined };
    const { clockMarginMs, headers: names } = config;
    const reader = new AuditReader({ ledger, requests }, sink, { clockMarginMs, layout, names });
    await readShown(session, [...requests, ...ledger], 'looking for decisions', (record) => void reader.take(record));
    return undecidedIn(store.grouped());
  });
}

/** The reply topics that exist: those under the prefix, and the one for NestJS. */
export async function replyTopics({ cluster }: Source, { topics }: KafkaConfig): Promise<string[]> {
  const all = (await cluster.metadata('all')).topics.map(({ name }) => name);
  return all.filter((name) => name.startsWith(topics.replyPrefix) || name === `${topics.requests}.reply`).sort();
}

/** Checks everything that was read, with progress on stderr. */
export async function checkAll(
  context: CliContext,
  store: AuditStore,
  reader: CheckedReader,
  findings: Findings,
): Promise<JoinCounts> {
  const steps = checks(store, reader, { find: findings.add });
  let [shown, progress]: [string, Progress | undefined] = ['', undefined];
  for (;;) {
    const { done: isOver, value: step } = steps.next();
    if (isOver === true || step.what !== shown) progress?.end();
    if (isOver === true) return step;
    if (step.what !== shown) progress = new Progress(context, step.what, step.total);
    shown = step.what;
    progress?.show(step.done);
    await nextTurn();
    if (context.stop.aborted) throw new IdallocError('STOPPING', 'stopped by a signal before everything was checked');
  }
}
