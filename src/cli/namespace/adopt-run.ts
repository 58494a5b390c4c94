import { CALL_TIMEOUT_MS } from '../../adapters/kafka/brokers.ts';
import { KafkaLedgerEntries } from '../../adapters/kafka/ledger-log.ts';
import { type Source, wholePartition } from '../../adapters/kafka/topics/spans.ts';
import type { EndHead } from '../../codec/head-values.ts';
import { encodeLedgerEntry } from '../../codec/ledger-entry.ts';
import { digestEntry } from '../../codec/ledger-key.ts';
import { adoptionHeaders } from '../../codec/request-position.ts';
import type { Config } from '../../config/config.ts';
import { IdallocError } from '../../errors.ts';
import { type Bindings, bindingConflicts, bindingsOf, boundCluster } from '../../identity/bindings.ts';
import { namespaceKeys, readSnapshot } from '../../identity/keys.ts';
import { requireNoOwners } from '../../identity/rebuild.ts';
import {
  compareEnd,
  EtcdEndHeads,
  isEntryOf,
  lastEntries,
  type StoredEnd,
  usualShift,
} from '../../ledger/end-heads.ts';
import type { LedgerLog } from '../../ledger/ledger-ports.ts';
import { lossesNow, lossRecords } from '../../ledger/sequence-rule.ts';
import type { CliContext } from '../context.ts';
import { journaled } from '../journal/journal-run.ts';
import type { ConfirmFlags } from '../options.ts';
import { present, table, timeText } from '../output.ts';
import { ledgerWriter, type SequenceSession, withSequences } from '../sequence/sequence-session.ts';
import { type SequenceView, sequencesText, viewSequences } from '../sequence/sequence-view.ts';
import { confirm } from '../terminal.ts';

/** What --json prints. */
interface AdoptView {
  readonly cluster: string;
  /** The cluster to which the namespace was bound; null if to none. */
  readonly bound: string | null;
  readonly partitions: readonly PartitionView[];
  readonly sequences: readonly SequenceView[];
  readonly adopted: boolean;
}

/** Another append, or another worker's write, may come first, each time. */
const MAX_TRIES = 20;

/** Adopts this cluster, after a confirmation. */
export async function runAdopt(context: CliContext, flags: ConfirmFlags): Promise<void> {
  await withSequences(context, (session) => adoptCluster(session, flags));
}

export async function adoptCluster(session: SequenceSession, { yes, json }: ConfirmFlags): Promise<void> {
  const { context, config, source, etcd } = session;
  const { clusterId } = await source.cluster.metadata([], CALL_TIMEOUT_MS);
  const bindings = bindingsOf(namespaceKeys(config.etcd.prefix, config.datacenterId), { ...config, clusterId });
  const refusals = await bindingConflicts(etcd, bindings);
  if (refusals.length > 0) throw new IdallocError('NAMESPACE_MISMATCH', refusals.join(' '));
  const bound = await boundCluster(etcd, bindings);
  const isOther = bound !== undefined && bound.id !== clusterId;
  if (isOther) await requireUnheld(session);
  const partitions = await viewPartitions(session);
  const due = partitions.filter(({ state }) => isOther || (state !== 'whole' && state !== 'unknown'));
  const { views: sequences } = await viewSequences(session, false);
  const view: AdoptView = { cluster: clusterId, bound: bound?.id ?? null, partitions, sequences, adopted: false };
  if (!isOther && due.length === 0) {
    // A worker of the old cluster may have bound it meanwhile.
    if ((await boundCluster(etcd, bindings))?.id !== bound?.id) throw rebound();
    present(context, json, view, () => `${adoptText(view)}nothing to adopt: the ledger has all that etcd knows of\n`);
    return;
  }
  if (json !== true) context.err(adoptText(view));
  await confirmAdoption(context, view, yes);
  const given = { ledger: config.topics.ledger, cluster: clusterId, bound: bound?.id ?? null };
  await journaled(session, { command: 'namespace adopt-cluster', arguments: given }, async (note) => {
    note(`states losses in partitions ${due.map(({ partition }) => partition).join(', ')}`);
    for (const { partition } of due) {
      await adoptPartition(session, partition, isOther);
      await stateLosses(session, ledgerWriter(source, config.topics), partition);
    }
    if (isOther) await bind(session, bindings, bound.revision);
  });
  const text = `adopted the cluster ${clusterId}: unknown requests from before get FORGOTTEN, and workers go on\n`;
  present(context, json, { ...view, adopted: true }, () => text);
}

function confirmAdoption(context: CliContext, { cluster, bound }: AdoptView, yes?: true): Promise<void> {
  const instead = bound === null || bound === cluster ? '' : ` instead of ${bound}`;
  const question = `Adopt the ledger of the cluster ${cluster}${instead}? What it lacks of decisions is FORGOTTEN.`;
  return confirm(context, question, yes);
}

/** Workers of the other cluster decide on: what they decide from now on, the ledger of this one never gets. */
async function requireUnheld({ etcd, config }: SequenceSession): Promise<void> {
  requireNoOwners((await readSnapshot(etcd, namespaceKeys(config.etcd.prefix, config.datacenterId))).owners);
}

async function viewPartitions(session: SequenceSession): Promise<readonly PartitionView[]> {
  const { config, source } = session;
  const all = Array.from({ length: config.topics.requestPartitions }, (_, partition) => partition);
  const stored = await headsOf(session).read(all);
  const views: PartitionView[] = [];
  for (const partition of all)
    views.push(await viewPartition(source, config, partition, stored.get(partition) as StoredEnd));
  return views;
}

function headsOf({ etcd, keysOf }: SequenceSession): EtcdEndHeads {
  return new EtcdEndHeads(etcd, (partition) => keysOf(partition).end);
}

/**
 * States in the ledger that it may lack decisions, for every request that is in the request topic now, and lets etcd
 * remember the log as it is. Safe to repeat.
 */
async function adoptPartition(session: SequenceSession, partition: number, isOther: boolean): Promise<void> {
  const { source, config } = session;
  const heads = headsOf(session);
  const log = ledgerWriter(source, config.topics);
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    const { head: before, revision } = (await heads.read([partition])).get(partition) as StoredEnd;
    // Another cluster may have fewer requests; of the same one, a leader that is deposed may report fewer.
    const known = isOther ? -1 : (before?.through ?? -1);
    const stated = await statePartition(log, partition, { end: before?.end ?? 0, known });
    if (stated === undefined) continue;
    await forgetRequests(session, log, partition, known);
    const head = { ...stated, life: (before?.life ?? 0) + 1 };
    if ((await heads.swap([{ partition, revision, head }])) !== undefined) return;
  }
  throw overtaken(partition);
}

function overtaken(partition: number): IdallocError {
  const message = `other programs wrote to ledger partition ${partition}, or to what etcd has of it, before each of ${MAX_TRIES} tries: stop its workers and run the command again`;
  return new IdallocError('OVERTAKEN', message);
}

/**
 * States that a partition may lack decisions, and that its request offsets begin anew. Resolves undefined if another
 * append came first, so that the marker does not say that.
 */
async function statePartition(
  log: LedgerLog,
  partition: number,
  old: { readonly end: number; readonly known: number },
) {
  const [now, requestEnd] = [await log.endOffset(partition), await log.requestEnd(partition, old.known)];
  const [end, through] = [Math.max(old.end, now + 1), requestEnd - 1];
  const value = encodeLedgerEntry({ kind: 'marker', end, through });
  const marker = { key: null, value, headers: adoptionHeaders(now) };
  const { baseOffset: offset, appendedAtMs } = await log.append(partition, [marker]);
  if (offset !== now) return undefined;
  const digest = digestEntry({ ...marker, offset, appendedAtMs });
  return { end: offset + 1, digest, through, time: appendedAtMs };
}

/**
 * Request offsets of another request topic say nothing about this one. What is pending of sequences stays, as decided
 * for requests that this topic has or had. The end is read after the head: what a worker has swapped in for this topic
 * is below it.
 */
async function forgetRequests(
  { heads }: SequenceSession,
  log: LedgerLog,
  partition: number,
  known: number,
): Promise<void> {
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    const head = await heads.read(partition, []);
    const through = (await log.requestEnd(partition, known)) - 1;
    const most = Math.max(0, through);
    const { namespace } = head;
    const pending = head.pending.map((one) =>
      one.kind === 'numbers' && one.entry.requestOffset > most
        ? { ...one, entry: { ...one.entry, requestOffset: most } }
        : one,
    );
    if (head.through <= through && pending.every((one, i) => one === head.pending[i])) return;
    if (await heads.swap(partition, head, { namespace, through, pending, sequences: new Map() })) return;
  }
  throw overtaken(partition);
}

/**
 * States what each sequence of a partition has lost. A worker that takes the partition over would do so, too, but
 * later: requests that are sent from now on are new ones, which get the next numbers.
 */
export async function stateLosses(
  { heads, log }: Pick<SequenceSession, 'heads' | 'log'>,
  writer: LedgerLog,
  partition: number,
): Promise<void> {
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    const head = await heads.readAll(partition);
    await log.readWhole(
      partition,
      head.pending.filter((one) => one.kind === 'numbers'),
    );
    const reading = log.reading(partition);
    const { rows, end } = reading;
    const view = { row: (name: string) => rows.get(name), firstOf: reading.firstOf.bind(reading), head };
    const due = lossesNow(view, new Set([...head.names, ...rows.keys()]));
    if (due.length === 0) return;
    const through = Math.max(head.through, (await writer.requestEnd(partition, head.through)) - 1);
    const next = (sequence: string) => rows.get(sequence)?.known.next;
    await writer.append(partition, lossRecords(due, next, { end, through }));
  }
  throw overtaken(partition);
}

function rebound(): IdallocError {
  return new IdallocError('OVERTAKEN', 'a worker bound the ledger to its cluster meanwhile: run the command again');
}

async function bind(session: SequenceSession, { cluster }: Bindings, modRevision: bigint): Promise<void> {
  await requireUnheld(session);
  if (cluster === undefined) return;
  const { key, value } = cluster;
  const { succeeded } = await session.etcd.transact([{ key, modRevision }], [{ put: key, value: Buffer.from(value) }]);
  if (!succeeded) throw new IdallocError('OVERTAKEN', `${key} was changed meanwhile: run the command again`);
}

function adoptText({ cluster, bound, partitions, sequences }: AdoptView): string {
  const lines = [
    `cluster    ${cluster}\n`,
    `bound      ${bound ?? 'to no cluster yet'}\n\n`,
    partitionsText(partitions),
  ];
  return `${lines.join('')}\n${sequences.length === 0 ? '' : `${sequencesText(sequences)}\n`}`;
}

/**
 * What the ledger has of a partition, compared with what etcd remembers of it.
 *
 * - unknown: etcd remembers nothing
 * - damaged: what etcd has was not written by a worker
 * - whole:   the ledger has the last entry that etcd knows, or retention has removed it
 * - shorter: it ends before that entry
 * - other:   it has another entry at that offset
 * - copied:  it has that entry there, but written by something else
 * - shifted: it has that entry at another offset
 */
type PartitionState = 'unknown' | 'damaged' | 'whole' | 'shorter' | 'other' | 'copied' | 'shifted';

/** What --json prints of a partition. */
type PartitionView = Awaited<ReturnType<typeof viewPartition>>;

/** Compares a partition with what etcd has of it. Rejects as the ledger does. */
async function viewPartition(
  source: Source,
  { topics }: Pick<Config, 'topics'>,
  partition: number,
  { head, damage }: StoredEnd,
) {
  const { from: start, to: end } = await wholePartition(source, topics.ledger, partition);
  const { to: requestEnd } = await wholePartition(source, topics.requests, partition);
  const log = { partition, end, entries: new KafkaLedgerEntries({ ...source, topic: topics.ledger }) };
  const last = await lastEntries(log);
  return {
    partition,
    ledger_start: start,
    ledger_end: end,
    request_end: requestEnd,
    etcd_end: head?.end ?? null,
    state: damage === undefined ? await stateOf(head, log) : 'damaged',
    /** How many entries the ledger lacks at its end, at least. */
    missing: Math.max(0, (head?.end ?? 0) - end),
    /** By how much the offsets of entries differ from those that they were written for; null if no entry shows it. */
    shift: usualShift(last) ?? null,
    /** When the last entry that etcd knows was appended. */
    etcd_time: head === undefined ? null : timeText(head.time),
  };
}

async function stateOf(head: EndHead | undefined, log: Parameters<typeof compareEnd>[1]): Promise<PartitionState> {
  if (head === undefined) return 'unknown';
  const { kind } = await compareEnd(head, log);
  if (kind === 'copied') return 'shifted';
  if (kind === 'whole') return 'whole';
  if (head.end > log.end) return 'shorter';
  const at = head.end - 1;
  const found = (await log.entries.read(log.partition, [at])).get(at);
  return found !== undefined && isEntryOf(head, found) ? 'copied' : 'other';
}

const MEANINGS: Readonly<Record<PartitionState, string>> = {
  unknown: 'etcd remembers nothing of it',
  damaged: "what etcd has of it can't be read",
  whole: 'has all that etcd knows of',
  shorter: 'lacks its end',
  other: 'has other entries',
  copied: 'has been copied',
  shifted: 'has been copied to other offsets',
};

function partitionsText(views: readonly PartitionView[]): string {
  const columns = ['>partition', '>ledger', '>etcd', '>missing', '>offsets', 'the ledger'];
  const offsets = (shift: number | null) =>
    shift === null ? '-' : shift === 0 ? 'equal' : `${shift > 0 ? '+' : ''}${shift}`;
  const rows = views.map((view) => [
    String(view.partition),
    `${view.ledger_start}..${view.ledger_end}`,
    view.etcd_end === null ? '-' : String(view.etcd_end),
    String(view.missing),
    offsets(view.shift),
    MEANINGS[view.state],
  ]);
  return table(columns, rows);
}
