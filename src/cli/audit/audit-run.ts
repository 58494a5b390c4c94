import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Command } from 'commander';
import { type KafkaConfig, loadKafkaConfig } from '../../config/config.ts';
import type { Layout } from '../../core/layout.ts';
import { IdallocError } from '../../errors.ts';
import { chosenLayout } from '../chosen-layout.ts';
import { type CliContext, EXIT } from '../context.ts';
import { withCluster } from '../kafka-session.ts';
import { present } from '../present.ts';
import { Progress, palette } from '../terminal.ts';
import type { AuditOptions } from './audit.ts';
import { type JoinCounts, ReplyJoin, unitsOf } from './check.ts';
import { OverlapSearch } from './overlap.ts';
import { AuditReader, type AuditSink, auditScope, readScope, replyTopics, sizeOf } from './read.ts';
import { auditJson, auditText, Findings } from './report.ts';
import { NumberJoin } from './sequences.ts';
import { type AuditStore, withStore } from './store.ts';

/** Reads ledger and replies, compares them, and prints what was found. */
export async function runAudit(context: CliContext, options: AuditOptions, command: Command): Promise<void> {
  const layout = chosenLayout(options, context.env, command);
  const config = loadKafkaConfig(context.env);
  const findings = new Findings(options.maxFindings);
  await withStore(options.tempDir, async (store) => {
    const sink = sinkOf(store, findings);
    const reader = await readAll(context, config, { ...options, own: layout }, sink);
    const join = await checkAll(context, store, reader, findings);
    if (findings.total > 0) context.setExitCode(EXIT.failed);
    const text = () => auditText(reader.counts, join, findings, palette(context));
    present(context, options.json, auditJson(reader.counts, join, findings), text);
  });
}

/** Takes what a reader finds. */
export function sinkOf(store: AuditStore, findings: Findings): AuditSink {
  return {
    add: (batch) => store.add(batch),
    addNumbers: (numbers) => store.numbers.add(numbers),
    find: findings.add,
  };
}

async function readAll(
  context: CliContext,
  config: KafkaConfig,
  { replyTopic: wanted = [], ledgerTopic: ledgers = [], own }: AuditOptions & { readonly own: Layout },
  sink: AuditSink,
): Promise<AuditReader> {
  return withCluster(context, config, async (source) => {
    const topics = wanted.length > 0 ? wanted : await replyTopics(source, config);
    const scope = await auditScope(source, [config.topics.ledger, ...ledgers], topics);
    const reader = new AuditReader(scope.ledger, sink, { clockMarginMs: config.clockMarginMs, layout: own });
    const progress = new Progress(context, 'reading', sizeOf(scope));
    const onProgress = (done: number) => progress.show(done);
    await readScope(source, scope, reader, { signal: context.stop, onProgress });
    progress.end();
    return reader;
  });
}

/** Checks everything that was read. */
export async function checkAll(
  context: CliContext,
  store: AuditStore,
  reader: Pick<AuditReader, 'counts' | 'ledgerReachesMs'>,
  findings: Findings,
): Promise<JoinCounts> {
  const { counts, ledgerReachesMs } = reader;
  const numbers = new NumberJoin({ ledgerReachesMs, find: findings.add });
  await each(context, 'checking numbers', store.numbers.size, store.numbers.grouped(), (one) => numbers.take(one));
  const addUnit = unitsOf((batch, unit, { step, ranges }) => store.addRuns(batch, unit, step, ranges));
  const join = new ReplyJoin({ ledgerReachesMs, find: findings.add, addUnit });
  const total = counts.entries + counts.replies;
  await each(context, 'checking replies', total, store.grouped(), (batch) => join.take(batch));
  const joined = join.end();
  const overlaps = new OverlapSearch(findings.add);
  await each(context, 'checking overlaps', store.runs, store.byFirstId(), (run) => overlaps.take(run));
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
