import { type Descriptor, decodeLeaseRecord, encodeCeiling, encodeDescriptor } from '../codec/namespace-values.ts';
import type { WitnessView } from '../codec/witness.ts';
import { type Layout, toTicks } from '../core/layout.ts';
import { type Ticks, ticks, type WallMs } from '../core/units.ts';
import { IdallocError } from '../errors.ts';
import { type Bindings, bindNamespace } from './bindings.ts';
import { type Compare, type EtcdPort, type KeyValue, tryTransact, type WitnessPort } from './identity-ports.ts';
import { type NamespaceKeys, readCeiling, type StoredCeiling } from './keys.ts';
import { newestCeiling, poolIds } from './namespace.ts';
import { requireSameLayout } from './witness.ts';

/** A namespace as it is stored, whatever its condition. */
export interface StoredNamespace {
  readonly descriptor: KeyValue | undefined;
  readonly owners: ReadonlyMap<number, KeyValue>;
  /** Each key as it is stored, and its decoded value; undefined when that is unreadable. */
  readonly ceilings: ReadonlyMap<number, { readonly kv: KeyValue; readonly stored: StoredCeiling | undefined }>;
  readonly view: WitnessView;
}

export interface RebuildOptions {
  readonly etcd: EtcdPort;
  readonly witness: WitnessPort;
  readonly keys: NamespaceKeys;
  /** With a new UUID for each call. */
  readonly wanted: Descriptor;
  readonly bindings: Bindings;
  /**
   * The first tick that may be used again, above all that was ever reserved. Called once no old term can reserve more.
   */
  readonly floorOf: (found: StoredNamespace) => Ticks;
}

/** Ceilings raised in one transaction, with two comparisons each: more would not fit into etcd's 128. */
const CHUNK = 60;
/** Steps beyond one for each chunk: lost answers, and the descriptor itself. */
const SPARE_STEPS = 20;
/** Witnesses written together. */
const WITNESSES = 1_000;
const REBUILT = 'rebuild-';

/** Reads everything that is stored. Rejects with ETCD_UNAVAILABLE and KAFKA_UNAVAILABLE. */
export async function readStoredNamespace(
  etcd: EtcdPort,
  witness: WitnessPort,
  keys: NamespaceKeys,
): Promise<StoredNamespace> {
  const view = await witness.read();
  return { ...(await readStore(etcd, keys)), view };
}

/**
 * Makes a namespace usable again after its etcd was rolled back, wiped or damaged, with every ceiling at a floor above
 * all that was ever reserved. No worker ID may be held. Safe to repeat after any interruption, and even if a worker
 * runs that should not.
 *
 * 1. The seal is written to the witness topic. From then on no reservation under another UUID is used: its holder reads
 *    the topic past its own witness. If the seal comes before that witness, the holder stops; if it comes after, the
 *    witness is among those read in step 2.
 * 2. Everything is read, and the floor is computed.
 * 3. Every ceiling is raised, as long as its worker ID has no owner; then the descriptor is written with the new UUID.
 *    So the new namespace is visible only once all its ceilings are at the floor, and writes planned before compare a
 *    descriptor that no longer exists.
 * 4. The new namespace's witnesses are written, and only then are the old ones removed.
 *
 * Before all that, the datacenter is claimed and the topics are bound, as at a worker's start. Rejects with
 * NAMESPACE_MISMATCH where they belong to others, REBUILD_REFUSED when a worker ID is held or the namespace changes
 * meanwhile, ETCD_UNAVAILABLE, KAFKA_UNAVAILABLE, and as `floorOf` does.
 */
export async function rebuildNamespace(options: RebuildOptions): Promise<{ readonly floor: Ticks }> {
  const { etcd, witness, keys, wanted, bindings } = options;
  requireNoOwners((await readStore(etcd, keys)).owners);
  await bindNamespace(etcd, bindings);
  await witness.write([{ seal: wanted.uuid }]);
  const found = await readStoredNamespace(etcd, witness, keys);
  requireNoOwners(found.owners);
  const floor = options.floorOf(found);
  const raised = await raiseAll(options, floor, found.descriptor);
  await replaceWitnesses(options, floor, raised);
  return { floor };
}

/** Evidence of what was or may have been used, and of how far ahead of the clock a worker may have reserved. */
export interface Evidence {
  readonly found: StoredNamespace;
  /** The highest tick of an ID in the ledger; undefined when it has none. */
  readonly ledger: Ticks | undefined;
  /** The current time, confirmed by an operator. */
  readonly now: WallMs;
  /** How far ahead of their clocks workers reserve. */
  readonly reserveMs: number;
}

/**
 * The first tick above everything that was reserved. A reservation that left no trace may reach `reserveMs` beyond the
 * clock, so that much is added; but not to the floor of an earlier rebuild, which no worker has used since. Throws
 * LAYOUT_EXHAUSTED when the layout has no such tick.
 */
export function floorAbove(layout: Layout, { found, ledger, now, reserveMs }: Evidence): Ticks {
  const { ceilings, witnesses, rebuilt } = usedTicks(found);
  const used = Math.max(toTicks(layout, now), ledger ?? 0, ceilings ?? 0, witnesses ?? 0);
  const floor = Math.max(used + Math.ceil(reserveMs / layout.tickMs) + 1, (rebuilt ?? 0) + 1);
  if (floor < layout.endTicks) return ticks(floor);
  throw new IdallocError(
    'LAYOUT_EXHAUSTED',
    `the namespace was used up to tick ${used}, at the end of layout ${layout.name}: move to another layout or ` +
      'epoch, under another ETCD_PREFIX and ID_SPACE',
  );
}

/**
 * The stored namespace; if `highest` is given, without the witnesses above it, since one that is forged could put every
 * floor decades ahead. The caller vouches that no worker's clock was ever past this tick. Ceilings and ledger still
 * count. Throws NAMESPACE_MISMATCH for any witness of another layout: its ticks can't be compared with this one's.
 */
export function believed(found: StoredNamespace, wanted: Descriptor, highest: Ticks | undefined): StoredNamespace {
  requireSameLayout(found.view.witnesses, wanted);
  if (highest === undefined) return found;
  const witnesses = found.view.witnesses.filter((witness) => witness.ticks <= highest);
  return { ...found, view: { ...found.view, witnesses } };
}

/** The highest tick reserved by the ceilings and by the witnesses, and the highest floor of an earlier rebuild. */
export function usedTicks(found: StoredNamespace): Partial<Record<'ceilings' | 'witnesses' | 'rebuilt', Ticks>> {
  const ceilings = [...readableOf(found).values()].filter(({ ticks: at }) => at > 0);
  const isRebuilt = ({ nonce }: StoredCeiling) => nonce.startsWith(REBUILT);
  const { witnesses } = found.view;
  const floors = witnesses.filter(({ fence }) => fence === 0n);
  return {
    ...highest(
      'ceilings',
      ceilings.filter((ceiling) => !isRebuilt(ceiling)),
    ),
    ...highest(
      'witnesses',
      witnesses.filter(({ fence }) => fence !== 0n),
    ),
    ...highest('rebuilt', [...ceilings.filter(isRebuilt), ...floors]),
  };
}

function highest(name: string, all: readonly { readonly ticks: Ticks }[]): Record<string, Ticks> {
  if (all.length === 0) return {};
  return { [name]: ticks(all.reduce((high, one) => Math.max(high, one.ticks), 0)) };
}

async function readStore(etcd: EtcdPort, keys: NamespaceKeys): Promise<Omit<StoredNamespace, 'view'>> {
  const { kvs } = await etcd.range(keys.root);
  const owners = new Map<number, KeyValue>();
  const ceilings = new Map<number, { kv: KeyValue; stored: StoredCeiling | undefined }>();
  for (const kv of kvs) {
    const place = keys.parse(kv.key);
    if (place?.kind === 'owner') owners.set(place.workerId, kv);
    else if (place?.kind === 'ceiling') ceilings.set(place.workerId, { kv, stored: readable(kv) });
  }
  return { descriptor: kvs.find(({ key }) => key === keys.descriptor), owners, ceilings };
}

function readableOf({ ceilings }: Pick<StoredNamespace, 'ceilings'>): ReadonlyMap<number, StoredCeiling> {
  return new Map([...ceilings].flatMap(([workerId, { stored }]) => (stored ? [[workerId, stored]] : [])));
}

function readable(kv: KeyValue): StoredCeiling | undefined {
  try {
    return readCeiling(kv);
  } catch (error) {
    if (error instanceof IdallocError) return undefined;
    throw error;
  }
}

/** Raises each ceiling of the pool and writes the descriptor; a fresh read decides each step. */
async function raiseAll(
  { etcd, keys, wanted }: RebuildOptions,
  floor: Ticks,
  before: KeyValue | undefined,
): Promise<ReadonlyMap<number, bigint>> {
  const pool = poolIds(wanted.pool);
  const [nonce, descriptor] = [`${REBUILT}${wanted.uuid}`, encodeDescriptor(wanted)];
  const value = encodeCeiling({ ticks: floor, nonce });
  const same: Compare =
    before === undefined
      ? { key: keys.descriptor, createRevision: 0n }
      : { key: keys.descriptor, modRevision: before.modRevision };
  const steps = Math.ceil(pool.length / CHUNK) + SPARE_STEPS;
  for (let step = 0; step < steps; step += 1) {
    const store = await readStore(etcd, keys);
    const revisions = new Map([...store.ceilings].map(([workerId, { kv }]) => [workerId, kv.modRevision]));
    if (store.descriptor?.value.equals(descriptor)) return revisions;
    requireNoOwners(store.owners);
    if (store.descriptor?.modRevision !== before?.modRevision) throw refused('another process wrote a descriptor');
    const low = pool.filter((workerId) => store.ceilings.get(workerId)?.stored?.nonce !== nonce).slice(0, CHUNK);
    const higher = low.find((workerId) => (store.ceilings.get(workerId)?.stored?.ticks ?? 0) > floor);
    if (higher !== undefined) throw refused(`another process raised the ceiling of worker ID ${higher}`);
    if (low.length === 0) {
      const there = newestCeiling({ ceilings: readableOf(store) }, keys);
      await tryTransact(etcd, [same, there], [{ put: keys.descriptor, value: descriptor }]);
    } else {
      const compares = low.flatMap((workerId) => unowned(keys, workerId, revisions.get(workerId)));
      const puts = low.map((workerId) => ({ put: keys.ceiling(workerId), value }));
      await tryTransact(etcd, [same, ...compares], puts);
    }
  }
  throw new IdallocError(
    'ETCD_UNAVAILABLE',
    `the namespace ${keys.root} was not rebuilt in ${steps} steps: run the command again`,
  );
}

function unowned(keys: NamespaceKeys, workerId: number, ceiling: bigint | undefined): Compare[] {
  return [
    { key: keys.owner(workerId), createRevision: 0n },
    ceiling === undefined
      ? { key: keys.ceiling(workerId), createRevision: 0n }
      : { key: keys.ceiling(workerId), modRevision: ceiling },
  ];
}

async function replaceWitnesses(
  { witness, wanted }: RebuildOptions,
  floor: Ticks,
  revisions: ReadonlyMap<number, bigint>,
): Promise<void> {
  const { uuid, pool } = wanted;
  const reserved = { uuid, fence: 0n, leaseId: 0n, ticks: floor, layout: wanted };
  const puts = poolIds(pool).map((workerId) => ({
    put: { ...reserved, workerId, modRevision: revisions.get(workerId) ?? 0n },
  }));
  let view = await witness.read();
  for (let from = 0; from < puts.length; from += WITNESSES) {
    view = await witness.write(puts.slice(from, from + WITNESSES));
  }
  const drops = view.witnesses.filter((old) => old.uuid !== uuid).map((drop) => ({ drop }));
  const clears = view.unreadable.map(({ key }) => ({ clear: key }));
  const ends = [...drops, ...clears];
  for (let from = 0; from < ends.length; from += WITNESSES) await witness.write(ends.slice(from, from + WITNESSES));
}

/** Throws REBUILD_REFUSED, naming the holders, when any worker ID is held. */
export function requireNoOwners(owners: ReadonlyMap<number, KeyValue>): void {
  if (owners.size === 0) return;
  const held = [...owners].map(([workerId, { value }]) => `${workerId} by ${addressIn(value)}`);
  throw refused(`worker IDs are held: ${held.join(', ')}`);
}

function addressIn(record: Buffer): string {
  try {
    return decodeLeaseRecord(record).assignedWorkerIp;
  } catch {
    return 'a worker with an unreadable record';
  }
}

function refused(why: string): IdallocError {
  const remedy = 'stop all workers of this datacenter, wait until their leases expire, and run the command again';
  return new IdallocError('REBUILD_REFUSED', `${why}: ${remedy}`);
}
