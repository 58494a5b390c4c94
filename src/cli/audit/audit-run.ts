import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Command } from 'commander';
import { committedOffsets } from '../../adapters/kafka/consumer-group.ts';
import {
  OF_REQUESTS,
  offsetsAtTime,
  partitionsOf,
  type ReadIsolation,
  type Source,
  type Span,
  type TopicRecord,
  wholeTopic,
  wholeTopics,
} from '../../adapters/kafka/topics/spans.ts';
import type { KafkaConfig } from '../../config/config.ts';
import type { Layout } from '../../core/layout.ts';
import { IdallocError } from '../../errors.ts';
import { chosenLayout } from '../chosen.ts';
import { type CliContext, EXIT } from '../context.ts';
import { type KafkaSession, readShown, withKafka } from '../kafka-session.ts';
import type { JsonFlag, LayoutOptions } from '../options.ts';
import { present } from '../output.ts';
import { Progress, palette } from '../terminal.ts';
import type { Finding, FoundBatch, FoundNumbers, FoundRequest, Grouped } from './found.ts';
import { OverlapSearch, TermSearch } from './ids.ts';
import { NumberJoin, ToldTwice } from './numbers.ts';
import type { AuditLogs, ReadSpan } from './reach.ts';
import { AuditReader, type AuditSink } from './read.ts';
import { ReplyJoin } from './replies.ts';
import { auditJson, auditText, type Checked, Findings, journalFor, unjudgedIn } from './report.ts';
import { type JoinReader, type Judged, RequestJoin } from './requests.ts';
import { type AuditStore, withStore } from './store.ts';

export interface AuditOptions extends LayoutOptions, JsonFlag {
  readonly replyTopic?: readonly string[];
  readonly ledgerTopic?: readonly string[];
  /** The requests of this time or later, and before the other, are judged. */
  readonly from?: number;
  readonly to?: number;
  readonly graceMs: number;
  readonly maxFindings: number;
  readonly tempDir: string;
}

/** Reads everything that requests leave behind, compares it, and prints what was found. */
export async function runAudit(context: CliContext, options: AuditOptions, command: Command): Promise<void> {
  const layout = chosenLayout(options, context.env, command);
  const findings = new Findings(options.maxFindings);
  const { from = Number.NEGATIVE_INFINITY, to = Number.POSITIVE_INFINITY, graceMs } = options;
  if (from >= to) command.error('error: --from must be before --to: no request is of a time between them');
  const nowMs = context.now();
  const judged = { fromMs: from, toMs: to, dueBeforeMs: nowMs - graceMs, nowMs };
  await withStore(options.tempDir, async (store) => {
    const reader = await withKafka(context, (session) =>
      readAll({ ...session, layout }, 'reading', options, sinkOf(store, findings), { judged }),
    );
    const join = await checkAll(context, store, reader, { find: findings.add, judged });
    const unjudged = unjudgedIn(join, options);
    if (findings.total + unjudged > 0) context.setExitCode(EXIT.failed);
    const { counts: read, losses, accounts, clockMarginMs } = reader;
    const journal = await journalFor(context, accounts, clockMarginMs);
    const report = { read, join, lost: losses.all, accounts, journal, findings, unjudged };
    present(context, options.json, auditJson(report), () => auditText(report, palette(context)));
  });
}

/** Takes what a reader finds. */
export function sinkOf(store: AuditStore, findings: Findings): AuditSink {
  return {
    add: (found) => store.add(found),
    addLetter: (letter) => store.addLetter(letter),
    addNumbers: (numbers) => store.addNumbers(numbers),
    find: findings.add,
  };
}

interface AuditSession extends KafkaSession {
  /** A layout to check batches against besides the presets. */
  readonly layout: Layout;
}

/**
 * Reads ledgers, reply topics and witnesses up to their ends at the time of the call, and with `judged` requests and
 * dead letters as well; without it, of dead letters only `letters`. `what` names the work in the progress.
 *
 * Workers go on meanwhile, so what follows from something else is looked at before it: first which requests were
 * answered, then replies and dead letters, then the ledgers, then requests and witnesses. So an answer has its reply, a
 * reply its entry, an entry its request and its ceiling.
 */
export async function readAll(
  session: AuditSession,
  what: string,
  { replyTopic = [], ledgerTopic = [] }: Pick<AuditOptions, 'replyTopic' | 'ledgerTopic'>,
  sink: AuditSink,
  { judged, letters: ownLetters = [] }: { readonly judged?: Judged; readonly letters?: readonly Span[] } = {},
): Promise<AuditReader> {
  const { config, source } = session;
  const { clockMarginMs, topics } = config;
  const sinceMs = (judged?.fromMs ?? Number.NEGATIVE_INFINITY) - 2 * clockMarginMs;
  const spansOf = async (of: readonly string[]) => await spansSince(source, of, { fromMs: sinceMs });
  const answeredBelow = judged && (await answeredOffsets(session));
  const replyNames = replyTopic.length > 0 ? replyTopic : await replyTopics(source, config);
  const replies = await spansSince(source, replyNames, { fromMs: sinceMs, before: BEFORE_REPLIES });
  const letters = judged ? await spansOf([topics.deadLetters]) : ownLetters;
  const ledger = await spansOf([topics.ledger, ...ledgerTopic]);
  const requests = judged
    ? await spansSince(source, [topics.requests], { fromMs: sinceMs, isolation: OF_REQUESTS })
    : [];
  const witness = await wholeTopics(source, [topics.witness]);
  const logs = { ledger, requests, replies, letters, witness, ...(answeredBelow && { answeredBelow }) };
  const reader = readerOf(session, logs, sink);
  const take = (record: TopicRecord) => reader.take(record);
  const written = [...ledger, ...replies, ...letters];
  // At once: compaction may remove a ceiling when a higher one follows, behind what is read here.
  await readShown(session, witness, `${what} witnesses`, take);
  await readShown(session, written, what, take);
  await readShown(session, requests, `${what} requests`, take, OF_REQUESTS);
  reader.end(
    await wholeTopics(
      source,
      [...written, ...requests].map(({ topic }) => topic),
    ),
  );
  return reader;
}

function readerOf({ config, layout }: AuditSession, logs: AuditLogs, sink: AuditSink): AuditReader {
  const { clockMarginMs, headers: names, topics } = config;
  return new AuditReader(logs, sink, { clockMarginMs, layout, names, requestPartitions: topics.requestPartitions });
}

/**
 * A reply that repeats an old decision has the time of that where the topic does not set times, so that it may lie
 * before the first record of a time. So many records before that one are read as well.
 */
const BEFORE_REPLIES = 1_000;

/** What topics hold of that time or later, and so many records before. */
export async function spansSince(
  source: Source,
  topics: readonly string[],
  { fromMs, before = 0, isolation }: { fromMs: number; before?: number; isolation?: ReadIsolation },
): Promise<ReadSpan[]> {
  const spans = await wholeTopics(source, topics, isolation);
  if (fromMs <= 0) return spans;
  const since = new Map<string, ReadonlyMap<number, number>>();
  for (const topic of topics) since.set(topic, await offsetsAtTime(source, topic, fromMs));
  return spans.map((span) => {
    const from = Math.min(since.get(span.topic)?.get(span.partition) ?? span.from, span.to) - before;
    return from > span.from ? { ...span, from, fromMs } : span;
  });
}

/** The offset of each request partition below which everything is answered, as a worker has committed. */
async function answeredOffsets({ config, source }: AuditSession): Promise<ReadonlyMap<number, number>> {
  const { groupId, topics } = config;
  const partitions = Array.from({ length: await partitionsOf(source, topics.requests) }, (_, partition) => partition);
  const committed = await committedOffsets(source, groupId, topics.requests, partitions);
  return new Map([...committed].flatMap(([partition, { position }]) => (position ? [[partition, position.next]] : [])));
}

/** The valid requests of these ranges that the ledger has not decided, by sequence and reply topic. */
export async function undecidedRequests(
  session: AuditSession,
  ranges: readonly Omit<Span, 'topic'>[],
  { tempDir }: Pick<AuditOptions, 'tempDir'>,
): Promise<UndecidedRequests[]> {
  const { config, source } = session;
  // The ledger last, so that what is decided meanwhile is known.
  const requests = ranges.map((range) => ({ topic: config.topics.requests, ...range }));
  return await withStore(tempDir, async (store) => {
    const ledger = await wholeTopic(source, config.topics.ledger);
    const sink = { ...sinkOf(store, new Findings(0)), addNumbers: () => undefined };
    const reader = readerOf(session, { ledger, requests }, sink);
    const take = (record: TopicRecord) => reader.take(record);
    await readShown(session, requests, 'reading requests', take, OF_REQUESTS);
    await readShown(session, ledger, 'looking for decisions', take);
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
  options: CheckOptions,
): Promise<Checked> {
  const steps = checks(store, reader, options);
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

/** What the checks need of a reader. */
export type CheckedReader = Pick<AuditReader, 'losses' | 'terms' | 'witnesses'> & JoinReader;

export interface CheckOptions {
  readonly find: (finding: Finding) => void;
  /** Which requests are judged; undefined for none. */
  readonly judged?: Judged | undefined;
  /** Gets what is found of requests as well, in groups: sorting it once more would take as long as the check. */
  readonly also?: (found: Grouped) => void;
}

/** How far a check has come. */
export interface CheckStep {
  readonly what: string;
  readonly total: number;
  readonly done: number;
}

/**
 * All checks of what was read, one after the other: the command runs them over real topics, and the simulator over
 * those of each simulated history. Whoever runs them decides how often to pause between the steps.
 */
export function* checks(
  store: AuditStore,
  reader: CheckedReader,
  { find, judged, also }: CheckOptions,
): Generator<CheckStep, Checked> {
  const { ledgerReachesMs, losses, lostTails, terms, witnesses, clockMarginMs } = reader;
  const has = (found: FoundNumbers) =>
    losses.has(found) || lostTails.mayHave(Buffer.from(found.sequence, 'latin1'), found.timeMs);
  const numbers = new NumberJoin({ ledgerReachesMs, losses: { has }, find });
  yield* each('checking numbers', store.withNumbers, store.groupedNumbers(), (one) => numbers.take(one));
  yield* each('checking losses', losses.all.length, losses.all, ({ sequence, from, to }) => {
    const twice = new ToldTwice(find);
    for (const one of store.numbersBetween(sequence, from, to)) twice.take(one);
  });
  const addUnit = (batch: FoundBatch) => store.addUnit(batch);
  const ledgers = new Set(reader.logs.ledger.map(({ topic }) => topic)).size;
  const join = new ReplyJoin({ ledgerReachesMs, lostTails, find, ledgers, addUnit });
  const requests = judged && new RequestJoin(reader, judged, find);
  yield* each('checking requests and replies', store.size, store.grouped(), (found) => {
    join.take(found);
    requests?.take(found);
    also?.(found);
  });
  const joined = { ...join.end(), requests: requests?.end() };
  const overlaps = new OverlapSearch(find);
  const termSearch = new TermSearch({ terms, witnesses, clockMarginMs, find });
  yield* each('checking IDs', store.runs, store.byFirstId(), (run) => {
    overlaps.take(run);
    termSearch.take(run);
  });
  return joined;
}

/** A step has at most this many items: the event loop runs in between, so that signals are handled. */
const ITEMS_PER_STEP = 5_000;

function* each<T>(
  what: string,
  total: number,
  items: Iterable<T>,
  take: (item: T) => void,
): Generator<CheckStep, void> {
  let done = 0;
  for (const item of items) {
    take(item);
    done += 1;
    if (done % ITEMS_PER_STEP === 0) yield { what, total, done };
  }
}

/** Requests of a kind that have no decision. */
export interface UndecidedRequests {
  /** The sequence whose numbers they want; undefined if they want IDs. */
  readonly sequence: string | undefined;
  readonly replyTopic: string;
  /** How many different ones; those under one ID count once. */
  requests: number;
  /** How many IDs or numbers they want. */
  wanted: number;
}

/**
 * The valid requests in a store that no entry of it decides, by sequence and reply topic. Memory holds a row of the
 * result for each kind, and the IDs of a group.
 */
export function undecidedIn(found: Iterable<Grouped>): UndecidedRequests[] {
  const all = new Map<string, UndecidedRequests>();
  const known = new Set<string>();
  let group = -1;
  for (const one of found) {
    if (one.group !== group) known.clear();
    group = one.group;
    if (one.kind === 'death' || one.source === 'reply') continue;
    const name = `${one.kind === undefined ? '' : (one.sequence ?? '')} ${one.requestId.toString('latin1')}`;
    if (one.kind === 'request' && one.rejected === undefined && !known.has(name)) add(all, one);
    known.add(name);
  }
  return [...all.values()];
}

function add(all: Map<string, UndecidedRequests>, { sequence, replyTopic, count }: FoundRequest): void {
  const name = `${replyTopic} ${sequence ?? ''}`;
  const sum = all.get(name) ?? { sequence, replyTopic, requests: 0, wanted: 0 };
  all.set(name, sum);
  sum.requests += 1;
  sum.wanted += count;
}
