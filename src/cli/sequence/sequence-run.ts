import { formatNumber } from '../../codec/sequence-format.ts';
import { type Config, loadWorkerConfig } from '../../config/config.ts';
import { type SequenceRow, type Statement, statedOf } from '../../core/sequence.ts';
import { IdallocError } from '../../errors.ts';
import { sequenceKey } from '../../identity/bindings.ts';
import { namespaceKeys } from '../../identity/keys.ts';
import type { EtcdPort } from '../../identity/ports.ts';
import type { CliContext } from '../context.ts';
import { withEtcd } from '../etcd-session.ts';
import { withKafka } from '../kafka-session.ts';
import { present } from '../present.ts';
import { table, timeText } from '../table.ts';
import { confirm } from '../terminal.ts';
import { SequenceLog } from './sequence-log.ts';

export interface JsonFlag {
  readonly json?: true;
}

/** What a sequence may be changed to. */
export interface ChangeFlags extends JsonFlag {
  readonly step?: number;
  readonly max?: number;
  readonly format?: string;
}

export interface CreateFlags extends ChangeFlags {
  readonly start: number;
  readonly again?: true;
}

export interface RestartFlags extends JsonFlag {
  readonly at: number;
}

export interface ListFlags extends JsonFlag {
  readonly all?: true;
}

export interface CloseFlags extends JsonFlag {
  readonly yes?: true;
}

/** What --json prints of a sequence. */
interface SequenceView extends Statement {
  readonly sequence: string;
  readonly partition: number;
  readonly stated_at: string;
}

/** Sequences of a partition that workers keep in memory. */
const MAX_SEQUENCES = 10_000;

/** Creates a sequence. */
export async function createSequence(context: CliContext, name: string, flags: CreateFlags): Promise<void> {
  const config = loadWorkerConfig(context.env);
  const plain = { next: flags.start, step: 1, max: Number.MAX_SAFE_INTEGER, format: '', closed: false, edition: 1 };
  const created = definition(name, plain, flags);
  await withEtcd(config, (etcd) => remember(etcd, config, name, flags.again === true));
  await inLog(context, async (log) => {
    const partition = await log.readHome(name, flags.again !== true);
    const others = log.rows.size;
    if (others >= MAX_SEQUENCES) {
      throw new IdallocError('CONFIG_INVALID', `partition ${partition} has ${others} sequences, and no room for more`);
    }
    await log.state(name, partition, (row) => {
      if (row === undefined) return created;
      if (flags.again !== true) throw exists(name, row);
      requireAbove(name, created.next, row.known.next);
      return { ...created, edition: Math.max(0, row.known.edition) + 1 };
    });
    print(context, flags, viewOf(log, name));
  });
}

/** etcd has every name that was ever created, under a key that nothing deletes. */
async function remember(etcd: EtcdPort, config: Config, name: string, again: boolean): Promise<void> {
  const { root } = namespaceKeys(config.etcd.prefix, config.datacenterId);
  const key = sequenceKey(root, config.topics.ledger, name);
  const { succeeded } = await etcd.transact(
    [{ key, createRevision: 0n }],
    [{ put: key, value: Buffer.from('created') }],
  );
  if (succeeded || again) return;
  throw new IdallocError(
    'CONFLICT',
    `the sequence ${name} was created before: 'idalloc sequence show ${name}' shows it; if nothing is left of it, create it with --again --start N, above every number that was received`,
  );
}

/** Lists the sequences that workers serve, or all that the ledger has. */
export async function listSequences(context: CliContext, flags: ListFlags): Promise<void> {
  await inLog(context, async (log) => {
    const sinceMs = flags.all === true ? undefined : await log.readStated();
    if (sinceMs === undefined) await log.readAll();
    const stated = [...log.rows].filter(([, { row }]) => statedOf(row) !== undefined);
    const names = stated.map(([name]) => name).sort();
    const views = names.map((name) => viewOf(log, name));
    const text = () => (views.length === 0 ? 'no sequences\n' : tableOf(views));
    present(context, flags.json, { sequences: views, since: sinceMs === undefined ? null : timeText(sinceMs) }, text);
  });
}

/** Shows one sequence. */
export async function showSequence(context: CliContext, name: string, flags: JsonFlag): Promise<void> {
  await inLog(context, async (log) => {
    await log.readHome(name);
    print(context, flags, viewOf(log, name));
  });
}

/** Continues a sequence at a higher number. */
export async function restartSequence(context: CliContext, name: string, flags: RestartFlags): Promise<void> {
  const changed = (known: Statement, least: number): Statement => {
    requireAbove(name, flags.at, least);
    return definition(name, { ...known, next: flags.at }, {});
  };
  await change(context, name, flags, { changed, missing: () => gone(name, flags.at) });
}

/** Changes the definition of a sequence. */
export async function redefineSequence(context: CliContext, name: string, flags: ChangeFlags): Promise<void> {
  await change(context, name, flags, { changed: (known) => definition(name, known, flags) });
}

/** Closes a sequence. */
export async function closeSequence(context: CliContext, name: string, flags: CloseFlags): Promise<void> {
  await confirm(context, `Close the sequence ${name}? It can't be opened again.`, flags.yes === true);
  await change(context, name, flags, { changed: (known) => ({ ...known, closed: true }) });
}

interface Change {
  /** What the sequence becomes, in its next edition; `least` is the lowest number that does not repeat one. */
  readonly changed: (known: Statement, least: number) => Statement;
  /** The error if the ledger has no statement of it. */
  readonly missing?: () => IdallocError;
}

async function change(
  context: CliContext,
  name: string,
  flags: JsonFlag,
  { changed, missing = () => unknown(name) }: Change,
): Promise<void> {
  await inLog(context, async (log) => {
    const partition = await log.readHome(name);
    await log.state(name, partition, (row) => {
      const known = statedOf(row);
      if (known === undefined) throw missing();
      if (known.closed) throw new IdallocError('SEQUENCE_CLOSED', `the sequence ${name} is closed, for good`);
      return changed({ ...known, edition: known.edition + 1 }, known.next);
    });
    print(context, flags, viewOf(log, name));
  });
}

/** @throws IdallocError CONFIG_INVALID for a next number that repeats one. */
function requireAbove(name: string, next: number, least: number): void {
  if (next >= least) return;
  throw new IdallocError(
    'CONFIG_INVALID',
    `numbers of ${name} below ${least} may have been given out: use ${least} or more`,
  );
}

/**
 * A sequence with these changes. The largest number leaves room for one more step, so that the next number is always exact.
 *
 * @throws IdallocError CONFIG_INVALID for a largest number above that, and for a sequence that is beyond its largest number.
 */
export function definition(name: string, before: Statement, { step, max, format }: ChangeFlags): Statement {
  const steps = step ?? before.step;
  const most = Number.MAX_SAFE_INTEGER - steps;
  const largest = max ?? Math.min(before.max, most);
  if (largest > most) {
    throw new IdallocError(
      'CONFIG_INVALID',
      `with a step of ${steps} the largest number of ${name} is at most ${most}`,
    );
  }
  if (before.next > largest + steps) {
    throw new IdallocError(
      'CONFIG_INVALID',
      `${name} continues at ${before.next}, which is beyond its largest number ${largest}`,
    );
  }
  return { ...before, step: steps, max: largest, format: format ?? before.format };
}

async function inLog(context: CliContext, use: (log: SequenceLog) => Promise<void>): Promise<void> {
  await withKafka(context, (session) => use(new SequenceLog(session)));
}

function viewOf(log: SequenceLog, name: string): SequenceView {
  const found = log.rows.get(name);
  const known = statedOf(found?.row);
  if (found === undefined || known === undefined) throw unknown(name);
  const { stated } = found.row;
  return { sequence: name, partition: found.partition, ...known, stated_at: timeText(stated.appendedAtMs) };
}

function print(context: CliContext, { json }: JsonFlag, view: SequenceView): void {
  present(context, json, view, () => tableOf([view]));
}

function tableOf(views: readonly SequenceView[]): string {
  const columns = [
    { title: 'sequence' },
    { title: 'partition', right: true },
    { title: 'next', right: true },
    { title: 'step', right: true },
    { title: 'largest', right: true },
    { title: 'written as' },
    { title: 'state' },
  ];
  const rows = views.map(({ sequence, partition, next, step, max, format, closed }) => [
    sequence,
    String(partition),
    String(next),
    String(step),
    String(max),
    formatNumber(format, next),
    closed ? 'closed' : 'open',
  ]);
  return table(columns, rows);
}

function unknown(name: string): IdallocError {
  return new IdallocError(
    'NOT_FOUND',
    `the ledger has no sequence ${name}: create it with 'idalloc sequence create ${name}', or check LEDGER_TOPIC`,
  );
}

/** A ledger that lost its tail, or was recreated, may have lost the statement with the numbers. */
function gone(name: string, at: number): IdallocError {
  return new IdallocError(
    'NOT_FOUND',
    `the ledger has no sequence ${name}: if it lost it, continue it with 'idalloc sequence create ${name} --again --start ${at}', and the --step, --max and --format that it had; else check the name and LEDGER_TOPIC`,
  );
}

function exists(name: string, { known }: SequenceRow): IdallocError {
  const state = known.closed ? 'is closed' : `continues at ${known.next}`;
  return new IdallocError('CONFLICT', `there is a sequence ${name} already, which ${state}`);
}
