import { CALL_TIMEOUT_MS } from '../../adapters/kafka/brokers.ts';
import type { JournalArguments } from '../../codec/journal-entry.ts';
import type { Statement } from '../../core/sequence-row.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { bindingsOf, requireBindings } from '../../identity/bindings.ts';
import { namespaceKeys } from '../../identity/keys.ts';
import type { Head } from '../../ledger/heads.ts';
import { type Change, carryOut } from '../../ledger/sequence-order.ts';
import { type CliContext, EXIT } from '../context.ts';
import { journaled } from '../journal/journal-run.ts';
import type { ConfirmFlags, JsonFlag } from '../options.ts';
import { present, timeText } from '../output.ts';
import { confirm } from '../terminal.ts';
import { ledgerWriter, orderLog, type SequenceSession, withSequences } from './sequence-session.ts';
import {
  leftOut,
  leftOutText,
  type OmittedNumbers,
  type SequenceView,
  sequencesText,
  viewSequence,
  viewSequences,
} from './sequence-view.ts';

/** What a sequence may be changed to. */
export interface ChangeFlags extends JsonFlag {
  readonly step?: number;
  readonly max?: number;
  readonly format?: string;
}

export interface CreateFlags extends ChangeFlags {
  readonly start: number;
}

export interface RestartFlags extends ConfirmFlags {
  readonly at: number;
}

export interface ListFlags extends JsonFlag {
  readonly all?: true;
  readonly names?: true;
}

type Stated = Omit<Statement, 'edition'>;

/** Sequences of a partition that workers keep in memory. */
const MAX_SEQUENCES = 10_000;

/** Creates a sequence. */
export async function createSequence(context: CliContext, name: string, flags: CreateFlags): Promise<void> {
  const plain = { next: flags.start, step: 1, max: Number.MAX_SAFE_INTEGER, format: '', closed: false };
  const created = definition(name, plain, flags);
  const change = (now: Stated | undefined, least: number) => {
    if (now !== undefined) throw exists(name, now);
    if (created.next < least) throw tooLow(name, least);
    return created;
  };
  await withSequences(context, async (session) => {
    const { start, step, max, format } = flags;
    await order(session, name, { command: 'create', flags, change, given: { start, step, max, format }, isNew: true });
  });
}

/** Lists the sequences that workers serve, or all that the ledger has. */
export async function listSequences(context: CliContext, flags: ListFlags): Promise<void> {
  await withSequences(context, async (session) => {
    const { views, sinceMs } = await viewSequences(session, flags.all === true);
    const text = () => (views.length === 0 ? 'no sequences\n' : sequencesText(views));
    const since = sinceMs === undefined ? null : timeText(sinceMs);
    reportStopped(context, views);
    present(context, flags.json, { sequences: views, since }, text);
  });
}

/** Shows one sequence. */
export async function showSequence(context: CliContext, name: string, flags: JsonFlag): Promise<void> {
  await withSequences(context, async (session) => {
    const { heads, log } = session;
    const partition = log.homeOf(name);
    const head = await heads.read(partition, [name]);
    await log.readFor(partition, name, head.pending);
    print(session, partition, name, { flags, head });
  });
}

/** Continues a sequence at a higher number, after a confirmation that names the numbers that are left out. */
export async function restartSequence(context: CliContext, name: string, flags: RestartFlags): Promise<void> {
  await withSequences(context, (session) => restart(session, name, flags));
}

export async function restart(session: SequenceSession, name: string, flags: RestartFlags): Promise<void> {
  const { at } = flags;
  const change = (now: Stated): Stated => {
    if (at < now.next) throw tooLow(name, now.next);
    return definition(name, { ...now, next: at }, {});
  };
  const confirmed = async (now: Stated): Promise<void> => {
    const out = leftOut(change(requireOpen(name, now)), now.next);
    const question = `Restart ${name} at ${at}? It ${leftOutText('leaves out', name, out)}.`;
    await confirm(session.context, question, flags.yes === true || out === null);
  };
  await changeSequence(session, name, { command: 'restart', flags, change, given: { at }, confirmed });
}

/** Changes the definition of a sequence. */
export async function redefineSequence(context: CliContext, name: string, flags: ChangeFlags): Promise<void> {
  const { step, max, format } = flags;
  const change = (now: Stated) => definition(name, now, flags);
  const of = { command: 'redefine', flags, change, given: { step, max, format } } as const;
  await withSequences(context, (session) => changeSequence(session, name, of));
}

/** Closes a sequence. */
export async function closeSequence(context: CliContext, name: string, flags: ConfirmFlags): Promise<void> {
  await confirm(context, `Close the sequence ${name}? It can't be opened again.`, flags.yes);
  const change = (now: Stated) => ({ ...now, closed: true });
  const of = { command: 'close', flags, change, given: {} } as const;
  await withSequences(context, (session) => changeSequence(session, name, of));
}

interface OrderOf {
  readonly command: 'create' | 'restart' | 'redefine' | 'close';
  readonly flags: JsonFlag;
  readonly change: Change;
  /** What the operator gave, for the journal. */
  readonly given: JournalArguments;
  readonly isNew?: true;
  /** Asks, knowing the sequence as it is; it may be ahead by the time of the order. */
  readonly confirmed?: ((now: Stated) => Promise<void>) | undefined;
}

interface ChangeOf extends Pick<OrderOf, 'command' | 'flags' | 'given' | 'confirmed'> {
  /** Makes the change; it gets a sequence that is open. */
  readonly change: (now: Stated) => Stated;
}

async function changeSequence(session: SequenceSession, name: string, { change, ...of }: ChangeOf): Promise<void> {
  const ofOpen = (now: Stated | undefined) => change(requireOpen(name, now));
  await order(session, name, { ...of, change: ofOpen });
}

function requireOpen(name: string, now: Stated | undefined): Stated {
  if (now === undefined) throw unknown(name);
  if (now.closed) throw new IdallocError('SEQUENCE_CLOSED', `the sequence ${name} is closed, for good`);
  return now;
}

/** Carries out an order and prints the sequence. */
async function order(session: SequenceSession, name: string, of: OrderOf): Promise<void> {
  const { config, source, etcd, heads, log, namespace } = session;
  const { clusterId } = await source.cluster.metadata([], CALL_TIMEOUT_MS);
  await requireBindings(
    etcd,
    bindingsOf(namespaceKeys(config.etcd.prefix, config.datacenterId), { ...config, clusterId }),
  );
  const partition = log.homeOf(name);
  const head = await heads.read(partition, [name]);
  const isAdded = of.isNew === true && !head.sequences.has(name);
  await log.readHome(partition, name, isAdded);
  if (isAdded) await requireRoom(session, partition);
  if (of.confirmed !== undefined) {
    await log.readFor(partition, name, head.pending);
    await of.confirmed(requireKnown(session, partition, name, head));
  }
  const writer = ledgerWriter(source, config.topics);
  const options = { heads, partition, sequence: name, namespace, runtime: source.runtime };
  let before: Stated | undefined;
  let after: Stated | undefined;
  const change: Change = (now, least) => {
    after = undefined;
    before = now;
    after = of.change(now, least);
    return after;
  };
  const given = { ledger: config.topics.ledger, sequence: name, ...of.given };
  await journaled(session, { command: `sequence ${of.command}`, arguments: given }, async (note) => {
    try {
      await carryOut({ ...options, log: orderLog(log, writer, partition) }, change);
    } catch (error) {
      throw after === undefined ? error : withHint(error, name);
    } finally {
      if (after !== undefined) note(before === undefined ? '' : noteOf(name, before, after));
    }
  });
  const out = before && after && leftOut(after, before.next);
  const now = await heads.read(partition, [name]);
  print(session, partition, name, { flags: of.flags, head: now, out: of.command === 'restart' ? out : undefined });
}

/** What the order did, for the journal: the numbers that it left out, or what the sequence was before it. */
function noteOf(name: string, before: Stated, after: Stated): string {
  if (after.next > before.next) return leftOutText('left out', name, leftOut(after, before.next));
  const { next, step, max, format } = before;
  return `before it, ${name} continued at ${next} by ${step}, up to ${max}, written as '${format}'`;
}

async function requireRoom({ heads, log }: SequenceSession, partition: number): Promise<void> {
  const { names: held } = await heads.readAll(partition);
  const others = new Set([...held, ...log.reading(partition).rows.keys()]).size;
  if (others < MAX_SEQUENCES) return;
  throw invalid(`partition ${partition} has ${others} sequences, and no room for more`);
}

/**
 * A sequence with these changes. The largest number leaves room for one more step, so that the next number is always
 * exact.
 *
 * @throws IdallocError CONFIG_INVALID for a largest number above that, and for a sequence that is beyond its largest
 * number.
 */
export function definition<T extends Stated>(name: string, before: T, { step, max, format }: ChangeFlags): T {
  const steps = step ?? before.step;
  const most = Number.MAX_SAFE_INTEGER - steps;
  const largest = max ?? Math.min(before.max, most);
  if (largest > most) throw invalid(`with a step of ${steps} the largest number of ${name} is at most ${most}`);
  if (before.next > largest + steps)
    throw invalid(`${name} continues at ${before.next}, which is beyond its largest number ${largest}`);
  return { ...before, step: steps, max: largest, format: format ?? before.format };
}

interface Printed {
  readonly flags: JsonFlag;
  readonly head: Head;
  /** What a restart left out. */
  readonly out?: OmittedNumbers | null | undefined;
}

function print(session: SequenceSession, partition: number, name: string, { flags, head, out }: Printed): void {
  const { context } = session;
  const view = requireKnown(session, partition, name, head);
  reportStopped(context, [view]);
  const text = () => `${sequencesText([view])}${out === undefined ? '' : `${leftOutText('left out', name, out)}\n`}`;
  present(context, flags.json, { ...view, left_out: out }, text);
}

/** What both memories say of a sequence, the log of which was read. Throws NOT_FOUND if neither knows it. */
function requireKnown({ log, namespace }: SequenceSession, partition: number, name: string, head: Head): SequenceView {
  const view = viewSequence(name, { reading: log.reading(partition), namespace, head });
  if (view === undefined) throw unknown(name);
  return view;
}

function reportStopped(context: CliContext, views: readonly SequenceView[]): void {
  if (views.some(({ accord }) => accord === 'stopped')) context.setExitCode(EXIT.failed);
}

/**
 * Once it was decided what to order, etcd may hold the order, which then takes effect, whatever kept the ledger from
 * showing it.
 */
function withHint(error: unknown, name: string): unknown {
  if (!(error instanceof IdallocError)) return error;
  const hint = `'idalloc sequence show ${name}' says whether the order took effect; if etcd holds it, a worker completes it`;
  if (error.code === 'APPEND_UNANSWERED') {
    return new IdallocError('KAFKA_UNAVAILABLE', `${describeError(error)}: ${hint}`, { cause: error });
  }
  return new IdallocError(error.code, `${error.message}: ${hint}`, { cause: error });
}

/** Where both have lost their memory, only the operator knows what was received. */
function unknown(name: string): IdallocError {
  const message =
    `neither the ledger nor etcd knows a sequence ${name}: check the name and LEDGER_TOPIC, or run 'idalloc sequence create ${name}'. ` +
    'If both have lost it, add --start with a number above all that were received, and the --step, --max and --format that it had';
  return new IdallocError('NOT_FOUND', message);
}

function exists(name: string, { closed, next }: Stated): IdallocError {
  const state = closed ? 'is closed, for good: use another name' : `continues at ${next}`;
  return new IdallocError('CONFLICT', `there is a sequence ${name} already, which ${state}`);
}

function tooLow(name: string, least: number): IdallocError {
  return invalid(`numbers of ${name} below ${least} may have been given out: use ${least} or more`);
}

function invalid(message: string): IdallocError {
  return new IdallocError('CONFIG_INVALID', message);
}
