import { randomUUID } from 'node:crypto';
import { setTimeout as pause } from 'node:timers/promises';
import { type Source, wholeTopics } from '../../adapters/kafka/topics/spans.ts';
import type { IdBatch } from '../../codec/id-batch.ts';
import { decodeLedgerEntry } from '../../codec/ledger-entry.ts';
import { decodeDescriptor, descriptorOf } from '../../codec/namespace-values.ts';
import type { WitnessView } from '../../codec/witness.ts';
import type { Config } from '../../config/config.ts';
import { decompose, tickStartMs } from '../../core/layout.ts';
import type { Ticks } from '../../core/units.ts';
import { IdallocError, unlessInvalid } from '../../errors.ts';
import type { WitnessPort } from '../../identity/identity-ports.ts';
import type { Snapshot } from '../../identity/keys.ts';
import { requireDescriptor } from '../../identity/namespace.ts';
import { type StoredNamespace, usedTicks } from '../../identity/rebuild.ts';
import { otherLayout, requireNotRestored, requireUnused } from '../../identity/witness.ts';
import type { CliContext } from '../context.ts';
import { readShown } from '../kafka-session.ts';
import { counted, timeText } from '../output.ts';

/** The IDs of one datacenter, according to the ledgers. */
export interface LedgerFound {
  /** The highest tick of an ID; undefined without one. */
  readonly highest: Ticks | undefined;
  readonly entries: number;
  /** Ignored entries: unreadable, or of another datacenter. */
  readonly leftOut: number;
}

/**
 * Reads these ledgers to their ends, with progress on stderr. Rejects with TOPIC_INVALID for one that does not exist,
 * and with NAMESPACE_MISMATCH for a batch of this datacenter in another layout: IDs of the layout that is configured
 * could equal it.
 */
export async function searchLedgers(
  context: CliContext,
  config: Config,
  source: Source,
  topics: readonly string[],
): Promise<LedgerFound> {
  const what = topics.length === 1 ? 'reading the ledger' : `reading ${topics.length} ledgers`;
  const found = { highest: undefined as Ticks | undefined, entries: 0, leftOut: 0 };
  let other: { readonly batch: IdBatch; readonly topic: string } | undefined;
  await readShown({ context, source }, await wholeTopics(source, topics), what, ({ topic, value }) => {
    const tick = highestTick(value, config);
    if (tick === undefined) found.leftOut += 1;
    else if (typeof tick === 'object') other = { batch: tick, topic };
    else if (tick !== 'none') {
      found.entries += 1;
      if (found.highest === undefined || tick > found.highest) found.highest = tick;
    }
    return other !== undefined;
  });
  if (other === undefined) return found;
  const where = `the ledger '${other.topic}' has batches of datacenter ${config.datacenterId}`;
  throw otherLayout(where, other.batch, descriptorOf(config, ''));
}

/**
 * `none` for a record without IDs: a marker, or one of a sequence. A batch of this datacenter in another layout as it
 * is.
 */
function highestTick(value: Buffer | null, config: Config): Ticks | IdBatch | 'none' | undefined {
  try {
    const entry = decodeLedgerEntry(value ?? Buffer.alloc(0));
    return entry.kind === 'batch' ? tickOf(entry.batch, config) : 'none';
  } catch (error) {
    if (error instanceof IdallocError || error instanceof RangeError) return undefined;
    throw error;
  }
}

function tickOf(batch: IdBatch, { layout, datacenterId }: Config): Ticks | IdBatch | undefined {
  const last = batch.ranges.at(-1);
  if (batch.datacenterId !== datacenterId || last === undefined) return undefined;
  if (batch.layoutFingerprint !== layout.fingerprint) return batch;
  return decompose(layout, last.first + BigInt(last.count - 1) * batch.step).ticks;
}

/** A long topic takes several calls; each continues where the last one ended. */
const MAX_TRIES = 15;
const RETRY_DELAY_MS = 200;

/** Waits until the witness topic is read to its end. `rest`: what comes between two tries. */
export async function witnessReadToEnd(
  witness: Pick<WitnessPort, 'read'>,
  rest: () => Promise<unknown> = () => pause(RETRY_DELAY_MS),
): Promise<void> {
  for (let tries = 1; ; tries += 1) {
    try {
      await witness.read();
      return;
    } catch (error) {
      const passing = error instanceof IdallocError && error.code === 'KAFKA_UNAVAILABLE';
      if (!passing || tries === MAX_TRIES) throw error;
      await rest();
    }
  }
}

/** The findings, for --json. Times are the starts of ticks; a UUID is null without a readable descriptor. */
export function viewFound(config: Config, found: StoredNamespace, ledger?: LedgerFound) {
  const time = (ticks: number | undefined) =>
    ticks === undefined ? null : timeText(tickStartMs(config.layout, ticks as Ticks));
  const { seal, witnesses, unreadable } = found.view;
  const stored = [...found.ceilings.values()].flatMap((ceiling) => ceiling.stored ?? []);
  const used = usedTicks(found);
  return {
    uuid: uuidOf(found),
    holders: [...found.owners.keys()].sort((a, b) => a - b),
    ceilings: {
      count: found.ceilings.size,
      unreadable: found.ceilings.size - stored.length,
      highest: time(used.ceilings),
    },
    witness: {
      count: witnesses.length,
      unreadable: unreadable.length,
      highest: time(used.witnesses),
      namespaces: [...new Set([...(seal === undefined ? [] : [seal]), ...witnesses.map(({ uuid }) => uuid)])],
    },
    ledger: ledger && { entries: ledger.entries, left_out: ledger.leftOut, highest: time(ledger.highest) },
  };
}

function uuidOf({ descriptor }: StoredNamespace): string | null {
  return (descriptor && unlessInvalid(() => decodeDescriptor(descriptor.value).uuid)) ?? null;
}

export function foundText({ uuid, holders, ceilings, witness, ledger }: ReturnType<typeof viewFound>): string {
  const lines = [
    `namespace  ${uuid ?? 'none, or unreadable'}`,
    `held       ${holders.length === 0 ? 'no worker ID' : `worker IDs ${holders.join(', ')}`}`,
    `ceilings   ${ceilings.count}, up to ${ceilings.highest ?? 'nothing'}${left(ceilings.unreadable, 'unreadable')}`,
    `witness    ${witness.count}, up to ${witness.highest ?? 'nothing'}${left(witness.unreadable, 'unreadable')}`,
    ...witness.namespaces.filter((name) => name !== uuid).map((name) => `           of the namespace ${name}`),
    ...(ledger === undefined
      ? []
      : [
          `ledger     ${counted(ledger.entries, 'entry', 'entries')}, up to ${ledger.highest ?? 'nothing'}${left(ledger.left_out, 'left out')}`,
        ]),
  ];
  return `${lines.join('\n')}\n`;
}

function left(count: number, what: string): string {
  return count === 0 ? '' : `; ${count} ${what}`;
}

/** Why workers refuse to acquire here. `view` was read before etcd; `refusals` are those of the bindings. */
export function acquireRefusal(
  config: Config,
  snapshot: Snapshot,
  view: WitnessView,
  refusals: readonly string[],
): IdallocError | undefined {
  if (refusals.length > 0) return new IdallocError('NAMESPACE_MISMATCH', refusals.join(' '));
  try {
    const wanted = descriptorOf(config, randomUUID());
    if (snapshot.descriptor === undefined) requireUnused(view, wanted);
    else requireNotRestored(view, snapshot, requireDescriptor(snapshot.descriptor, wanted));
    return undefined;
  } catch (error) {
    if (error instanceof IdallocError) return error;
    throw error;
  }
}
