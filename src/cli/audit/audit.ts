import { tmpdir } from 'node:os';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { Command } from 'commander';
import { type KafkaConfig, loadKafkaConfig } from '../../config/config.ts';
import type { Layout } from '../../core/layout.ts';
import { IdallocError } from '../../errors.ts';
import { type CliContext, EXIT } from '../context.ts';
import { withCluster } from '../kafka-session.ts';
import { type LayoutOptions, layoutOf, withLayoutOptions } from '../layout-options.ts';
import { wholeNumber } from '../numbers.ts';
import { Progress, palette } from '../terminal.ts';
import { type JoinCounts, ReplyJoin, unitsOf } from './check.ts';
import { OverlapSearch } from './overlap.ts';
import { AuditReader, type AuditSink, auditScope, readScope, replyTopics, sizeOf } from './read.ts';
import { auditJson, auditText, Findings } from './report.ts';
import { type AuditStore, type FoundBatch, withStore } from './store.ts';

interface AuditOptions extends LayoutOptions {
  readonly replyTopic?: readonly string[];
  readonly ledgerTopic?: readonly string[];
  readonly maxFindings: number;
  readonly tempDir: string;
  readonly json?: true;
}

const EXAMPLES = `
Reads what the ledger and the reply topics hold now, and changes nothing. Looks for:
  OVERLAP           an ID in two batches
  SPLIT             a correlation ID with batches in several partitions, or in two ledgers
  OUTSIDE_EVIDENCE  IDs that don't match the worker, datacenter, layout or time of their batch
  DIVERGENT         a reply with another batch than the ledger decided
  UNDECIDED         a reply without a decision, though the ledger reaches back that far
  MISDIRECTED       a reply on another topic than the request named
  UNREADABLE        a record that is not a ledger entry, or not a reply
Batches of every preset are checked, and those of the custom layout that the options or LAYOUT and LAYOUT_* define.
A loser is an entry that came second; its IDs are a gap, which is normal. Batches are sorted on disk, about 300 bytes each.

Examples:
  idalloc audit
  idalloc audit --ledger-topic id.ledger.2
  idalloc audit --reply-topic id.replies.orders --temp-dir /var/tmp --json`;

export const LEDGER_FLAG = '--ledger-topic <topic>';
export const LEDGER_HELP =
  'read this ledger as well: of another pair of topics that shares these reply topics; repeatable';

/** An option that can be given more than once. */
export function repeated(value: string, before: readonly string[] = []): readonly string[] {
  return [...before, value];
}

/** `idalloc audit`: compares all replies with the decisions in the ledger. */
export function auditCommand(context: CliContext): Command {
  const command = new Command('audit').description(
    'Check all batches in ledger and reply topics: no ID twice, each reply as decided.',
  );
  return withLayoutOptions(command)
    .option(
      '--reply-topic <topic>',
      'check only this reply topic; repeatable (default: all under REPLY_TOPIC_PREFIX)',
      repeated,
    )
    .option(LEDGER_FLAG, LEDGER_HELP, repeated)
    .option('--max-findings <n>', 'most findings to list; all are counted', wholeNumber(1, 100_000), 100)
    .option('--temp-dir <directory>', 'where batches are sorted', tmpdir())
    .option('--json', 'print one line of JSON, with the findings')
    .addHelpText('after', EXAMPLES)
    .action((options: AuditOptions) => runAudit(context, options, layoutOf(options, context.env, command)));
}

async function runAudit(context: CliContext, options: AuditOptions, layout: Layout): Promise<void> {
  const config = loadKafkaConfig(context.env);
  const findings = new Findings(options.maxFindings);
  await withStore(options.tempDir, async (store) => {
    const sink = { add: (batch: FoundBatch) => store.add(batch), find: findings.add };
    const reader = await readAll(context, config, { ...options, own: layout }, sink);
    const join = await checkAll(context, store, reader, findings);
    if (findings.total > 0) context.setExitCode(EXIT.failed);
    if (options.json === true) context.out(`${JSON.stringify(auditJson(reader.counts, join, findings))}\n`);
    else context.out(auditText(reader.counts, join, findings, palette(context)));
  });
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
    const reader = new AuditReader(scope.ledger, sink, own);
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
  { counts, ledgerReachesMs }: Pick<AuditReader, 'counts' | 'ledgerReachesMs'>,
  findings: Findings,
): Promise<JoinCounts> {
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
