import { withEtcd } from '../../adapters/etcd/etcd.ts';
import { type Config, loadWorkerConfig } from '../../config/config.ts';
import { IdallocError } from '../../errors.ts';
import { type Bindings, bindingConflicts, bindingsOf } from '../../identity/bindings.ts';
import {
  type EtcdPort,
  type KeyOperation,
  type KeyValue,
  pagesOf,
  tryTransact,
} from '../../identity/identity-ports.ts';
import { ledgersRoot, namespaceKeys } from '../../identity/keys.ts';
import { requireNoOwners } from '../../identity/rebuild.ts';
import type { CliContext } from '../context.ts';
import { journaled } from '../journal/journal-run.ts';
import type { ConfirmFlags } from '../options.ts';
import { counted, present } from '../output.ts';
import { confirm } from '../terminal.ts';

/** `config` has the prefix to which the namespace moves. */
export interface MoveSession {
  readonly context: CliContext;
  readonly etcd: EtcdPort;
  readonly config: Pick<Config, 'idSpace' | 'datacenterId' | 'groupId' | 'topics' | 'etcd'>;
}

/** What says which namespace has the datacenter, and the prefix of that namespace. */
interface Claim {
  readonly stored: KeyValue;
  readonly prefix: string;
}

/** Keys in one answer, at 4 KiB each; and in one transaction, of which etcd takes 1.5 MiB. */
const PAGE = 500;
const CHUNK = 100;
const CHUNK_BYTES = 512 * 1_024;
/** Workers without a worker ID may still write what etcd remembers of a ledger. */
const MAX_TRIES = 5;

/** Moves the namespace, after a confirmation. */
export async function runMove(context: CliContext, flags: ConfirmFlags): Promise<void> {
  const config = loadWorkerConfig(context.env);
  await withEtcd(config.etcd, (etcd) => moveNamespace({ context, etcd, config }, flags));
}

/**
 * Gives the datacenter to the namespace at ETCD_PREFIX. What etcd remembers of ledgers, sequences and topics is copied
 * first, so that the new namespace knows it from its first moment; the claim is swapped last. Ceilings and descriptor
 * stay behind: a rebuild makes new ones, above every witness, and its seal stops what still runs under the old ones.
 * Until that rebuild no worker of either prefix allocates, but where nothing was ever allocated.
 *
 * @throws IdallocError REBUILD_REFUSED while a worker ID is held under either prefix; NAMESPACE_MISMATCH where the
 * namespace has other bindings, or the new prefix another ID space; NOT_FOUND without a namespace; CONFIG_INVALID where
 * one prefix lies below the other; OVERTAKEN if something else writes meanwhile; NOT_CONFIRMED, ETCD_UNAVAILABLE,
 * ETCD_REFUSED. Safe to repeat after any of them.
 */
export async function moveNamespace(session: MoveSession, { yes, json }: ConfirmFlags): Promise<void> {
  const { context, etcd, config } = session;
  const { idSpace, datacenterId } = config;
  const { prefix } = config.etcd;
  const to = namespaceKeys(prefix, datacenterId).root;
  const bindings = bindingsOf({ root: to }, config);
  const claim = await readClaim(etcd, bindings, datacenterId);
  const from = claim.stored.value.toString('utf8');
  const what = `datacenter ${datacenterId} of the ID space '${idSpace}'`;
  if (from === to) {
    const text = `${what} belongs to ${to} already: nothing to move\n`;
    present(context, json, { from, to, copied: 0, moved: false }, () => text);
    return;
  }
  requireApart(claim.prefix, prefix, datacenterId);
  await requireUnheld(etcd, [claim.prefix, prefix], datacenterId);
  await requireSameBindings(session, from, bindings);
  const question = `Move ${what} from ${from} to ${to}? None of its workers may run.`;
  await confirm(context, question, yes);
  const copied = await journaledMove(session, claim, to);
  const text =
    `moved to ${to}, with ${counted(copied, 'key')} of ledgers and topics\n` +
    "Now run 'idalloc namespace rebuild' with this ETCD_PREFIX, then start the workers with it.\n" +
    `To undo it, run 'idalloc namespace move' with ETCD_PREFIX=${claim.prefix}; after a rebuild, rebuild again.\n`;
  present(context, json, { from, to, copied, moved: true }, () => text);
}

/** The bindings of the old prefix replace those of the new one, but never those of another ID space. */
async function requireSameBindings({ etcd, config }: MoveSession, from: string, { own }: Bindings): Promise<void> {
  const before = bindingsOf({ root: from }, config);
  const idSpaces = own.filter(({ key }) => key.endsWith('/id-space'));
  const refusals = await bindingConflicts(etcd, { ...before, own: [...before.own, ...idSpaces] });
  if (refusals.length > 0) throw new IdallocError('NAMESPACE_MISMATCH', refusals.join(' '));
}

/** Resolves to the number of keys that were copied. Whoever reads the journal under either prefix finds the move. */
function journaledMove(session: MoveSession, { stored, prefix }: Claim, to: string): Promise<number> {
  const { context, etcd, config } = session;
  const { datacenterId } = config;
  const command = { command: 'namespace move', arguments: { from: stored.value.toString('utf8'), to } };
  const there = { context, etcd, config: { datacenterId, etcd: { prefix } } };
  return journaled(there, command, (noteThere) =>
    journaled(session, command, async (noteHere) => {
      const copied = await copyMemory(session, { stored, prefix });
      await requireUnheld(etcd, [prefix, config.etcd.prefix], datacenterId);
      for (const note of [noteThere, noteHere]) note(`copied ${counted(copied, 'key')}`);
      await swapClaim(etcd, stored, to);
      return copied;
    }),
  );
}

async function readClaim(etcd: EtcdPort, { claim }: Bindings, datacenterId: number): Promise<Claim> {
  const stored = (await etcd.get([claim.key])).get(claim.key);
  if (stored === undefined) {
    const message = `no namespace has this datacenter yet, there is no key ${claim.key}: the first worker to start creates one`;
    throw new IdallocError('NOT_FOUND', message);
  }
  const root = stored.value.toString('utf8');
  const end = `/datacenter/${datacenterId}/`;
  if (root.endsWith(end)) return { stored, prefix: root.slice(0, -end.length) };
  throw new IdallocError('NAMESPACE_DAMAGED', `${claim.key} has '${root}', which is no namespace of this datacenter`);
}

/** A copy to a place inside its source would never end. */
function requireApart(from: string, to: string, datacenterId: number): void {
  const rootsOf = (prefix: string) => [namespaceKeys(prefix, datacenterId).root, ledgersRoot(prefix, datacenterId)];
  const isBelow = (one: string, other: string) => one.startsWith(other) || other.startsWith(one);
  if (!rootsOf(from).some((one) => rootsOf(to).some((other) => isBelow(one, other)))) return;
  const message = `ETCD_PREFIX ${to} and ${from}, where the namespace is, lie inside each other: choose another one`;
  throw new IdallocError('CONFIG_INVALID', message);
}

async function requireUnheld(etcd: EtcdPort, prefixes: readonly string[], datacenterId: number): Promise<void> {
  for (const prefix of prefixes) {
    const keys = namespaceKeys(prefix, datacenterId);
    const owners = new Map<number, KeyValue>();
    for await (const kv of pagesOf(etcd, keys.root, PAGE)) {
      const place = keys.parse(kv.key);
      if (place?.kind === 'owner') owners.set(place.workerId, kv);
    }
    requireNoOwners(owners);
  }
}

/**
 * What a namespace keeps through a rebuild, by key without the prefix: its bindings, and what etcd remembers of its
 * ledgers.
 */
async function memoryOf(etcd: EtcdPort, prefix: string, datacenterId: number): Promise<Map<string, Buffer>> {
  const keys = namespaceKeys(prefix, datacenterId);
  const found = new Map<string, Buffer>();
  for (const root of [keys.root, ledgersRoot(prefix, datacenterId)]) {
    for await (const { key, value } of pagesOf(etcd, root, PAGE)) {
      if (key !== keys.descriptor && keys.parse(key) === undefined) found.set(key.slice(prefix.length), value);
    }
  }
  return found;
}

/** Makes the memory of the new prefix that of the old one; resolves to the number of keys once they are the same. */
async function copyMemory({ etcd, config }: MoveSession, { stored, prefix }: Claim): Promise<number> {
  const { datacenterId } = config;
  const to = config.etcd.prefix;
  for (let tries = 0; tries < MAX_TRIES; tries += 1) {
    const wanted = await memoryOf(etcd, prefix, datacenterId);
    const there = await memoryOf(etcd, to, datacenterId);
    const changes: KeyOperation[] = [
      ...[...there.keys()].filter((rest) => !wanted.has(rest)).map((rest) => ({ delete: `${to}${rest}` })),
      ...[...wanted].flatMap(([rest, value]) =>
        there.get(rest)?.equals(value) === true ? [] : [{ put: `${to}${rest}`, value }],
      ),
    ];
    if (changes.length === 0) return wanted.size;
    for (const some of chunksOf(changes)) {
      // The prefix may have come to be in use since the claim was read.
      const { succeeded } = await etcd.transact([{ key: stored.key, modRevision: stored.modRevision }], some);
      if (!succeeded) throw overtaken(stored.key);
    }
  }
  const message = `what etcd has below ${prefix} was changed while it was copied: stop all workers of this datacenter, and run the command again`;
  throw new IdallocError('OVERTAKEN', message);
}

function* chunksOf(changes: readonly KeyOperation[]): Generator<readonly KeyOperation[], void> {
  let chunk: KeyOperation[] = [];
  let bytes = 0;
  for (const change of changes) {
    const size = 'put' in change ? change.value.length : 0;
    if (chunk.length === CHUNK || (chunk.length > 0 && bytes + size > CHUNK_BYTES)) {
      yield chunk;
      chunk = [];
      bytes = 0;
    }
    chunk.push(change);
    bytes += size;
  }
  if (chunk.length > 0) yield chunk;
}

async function swapClaim(etcd: EtcdPort, { key, modRevision }: KeyValue, root: string): Promise<void> {
  const value = Buffer.from(root);
  await tryTransact(etcd, [{ key, modRevision }], [{ put: key, value }]);
  const stored = (await etcd.get([key])).get(key);
  if (stored?.value.equals(value) === true) return;
  if (stored?.modRevision !== modRevision) throw overtaken(key);
  throw new IdallocError('ETCD_UNAVAILABLE', `etcd did not change ${key} in time: run the command again`);
}

function overtaken(key: string): IdallocError {
  return new IdallocError(
    'OVERTAKEN',
    `another program changed ${key} meanwhile: look at it, and run the command again`,
  );
}
