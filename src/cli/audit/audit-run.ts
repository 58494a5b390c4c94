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
import { type JoinCounts, ReplyJoin, unitsOf } from './check.ts';
import { ToldTwice } from './lost.ts';
import type { FoundNumbers } from './number-store.ts';
import { OverlapSearch } from './overlap.ts';
import { AuditReader, type AuditSink } from './read.ts';
import { auditJson, auditText, Findings } from './report.ts';
import { type UndecidedRequests, undecidedIn } from './request-join.ts';
import { NumberJoin } from './sequences.ts';
import { type AuditStore, withStore } from './store.ts';
import { TermSearch } from './witnesses.ts';

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

/** Checks everything that was read. */
export async function checkAll(
  context: CliContext,
  store: AuditStore,
  reader: Pick<AuditReader, 'ledgerReachesMs' | 'losses' | 'lostTails' | 'terms' | 'witnesses' | 'clockMarginMs'>,
  findings: Findings,
): Promise<JoinCounts> {
  const { ledgerReachesMs, losses, lostTails, terms, witnesses, clockMarginMs } = reader;
  const has = (found: FoundNumbers) =>
    losses.has(found) || lostTails.mayHave(Buffer.from(found.sequence, 'latin1'), found.timeMs);
  const numbers = new NumberJoin({ ledgerReachesMs, losses: { has }, find: findings.add });
  await each(context, 'checking numbers', store.numbers.size, store.numbers.grouped(), (one) => numbers.take(one));
  await each(context, 'checking losses', losses.all.length, losses.all, ({ sequence, from, to }) => {
    const twice = new ToldTwice(findings.add);
    for (const one of store.numbers.between(sequence, from, to)) twice.take(one);
  });
  const addUnit = unitsOf((batch, unit, { step, ranges }) => store.addRuns(batch, unit, step, ranges));
  const join = new ReplyJoin({ ledgerReachesMs, lostTails, find: findings.add, addUnit });
  await each(context, 'checking replies', store.size, store.grouped(), (found) => join.take(found));
  const joined = join.end();
  const overlaps = new OverlapSearch(findings.add);
  const termSearch = new TermSearch({ terms, witnesses, clockMarginMs, find: findings.add });
  await each(context, 'checking IDs', store.runs, store.byFirstId(), (run) => {
    overlaps.take(run);
    termSearch.take(run);
  });
  return joined;
}

/** The event loop runs after this many items, so that signals are handled. */
const ITEMS_PER_TURN = 5_000;

async function each<T>(
  context: CliContext,
  what: string,
  total: number,
  items: Iterable<T>,
  take: (item: T) => void,
): Promise<void> {
  const progress = new Progress(context, what, total);
  let done = 0;
  for (const item of items) {
    take(item);
    done += 1;
    if (done % ITEMS_PER_TURN !== 0) continue;
    progress.show(done);
    await nextTurn();
    if (context.stop.aborted) throw new IdallocError('STOPPING', 'stopped by a signal before everything was checked');
  }
  progress.end();
}
