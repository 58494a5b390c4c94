import { randomUUID } from 'node:crypto';
import { withEtcd } from '../../adapters/etcd/etcd.ts';
import { quoted } from '../../adapters/kafka/topics/rights.ts';
import { type Source, wholeTopic } from '../../adapters/kafka/topics/spans.ts';
import { descriptorOf } from '../../codec/namespace-values.ts';
import { type Config, loadWorkerConfig } from '../../config/config.ts';
import { tickStartMs, toTicks } from '../../core/layout.ts';
import { type Ticks, type WallMs, wallMs } from '../../core/units.ts';
import { IdallocError } from '../../errors.ts';
import { bindingConflicts, bindingsOf, boundLedgers, claimKey } from '../../identity/bindings.ts';
import type { EtcdPort, WitnessPort } from '../../identity/identity-ports.ts';
import { journalKeys, ledgersRoot, namespaceKeys, readSnapshot } from '../../identity/keys.ts';
import { requireDescriptor } from '../../identity/namespace.ts';
import {
  believed,
  floorAbove,
  readStoredNamespace,
  rebuildNamespace,
  requireNoOwners,
  type StoredNamespace,
  usedTicks,
} from '../../identity/rebuild.ts';
import { ledgerTail, startWitness } from '../../worker/ledger-tail.ts';
import { type CliContext, EXIT } from '../context.ts';
import { journaled } from '../journal/journal-run.ts';
import { withCluster } from '../kafka-session.ts';
import type { ConfirmFlags, JsonFlag } from '../options.ts';
import { present, timeText } from '../output.ts';
import { confirm } from '../terminal.ts';
import { acquireRefusal, foundText, type LedgerFound, searchLedgers, viewFound, witnessReadToEnd } from './found.ts';

export interface RebuildFlags extends ConfirmFlags {
  readonly now?: number;
  readonly ledger?: readonly string[];
  readonly withoutLedger?: readonly string[];
  readonly forgedAfter?: number;
}

/** Shows the namespace, and why workers refuse it. */
export async function showNamespace(context: CliContext, { json }: JsonFlag): Promise<void> {
  const { found, fault } = await withServers(context, async ({ config, etcd, witness }) => {
    const keys = namespaceKeys(config.etcd.prefix, config.datacenterId);
    const found = await readStoredNamespace(etcd, witness, keys);
    return { found: viewFound(config, found), fault: await refusalFor(config, etcd, found) };
  });
  if (fault !== undefined) context.setExitCode(EXIT.failed);
  const problem = fault === undefined ? null : { code: fault.code, message: fault.message };
  const well =
    found.uuid === null ? 'the first worker creates the namespace' : 'etcd has everything that was witnessed';
  const text = `${foundText(found)}${fault === undefined ? well : `${fault.code}: ${fault.message}`}\n`;
  present(context, json, { ...found, fault: problem }, () => text);
}

/** Why workers refuse to acquire here; also if etcd's content can't be read. */
async function refusalFor(
  config: Config,
  etcd: EtcdPort,
  { view }: StoredNamespace,
): Promise<IdallocError | undefined> {
  try {
    const keys = namespaceKeys(config.etcd.prefix, config.datacenterId);
    const refusals = await bindingConflicts(etcd, bindingsOf(keys, config));
    return acquireRefusal(config, await readSnapshot(etcd, keys), view, refusals);
  } catch (error) {
    if (error instanceof IdallocError && error.code !== 'ETCD_UNAVAILABLE' && error.code !== 'ETCD_REFUSED')
      return error;
    throw error;
  }
}

/** Rebuilds the namespace, after a confirmation. */
export async function runRebuild(context: CliContext, options: RebuildFlags): Promise<void> {
  const { uuid, floor, config, found } = await withServers(context, (servers) => rebuild(context, servers, options));
  const floorTime = timeText(tickStartMs(config.layout, floor));
  const text = `rebuilt as namespace ${uuid}; workers allocate IDs from ${floorTime} on\n`;
  present(context, options.json, { uuid, floor, floor_time: floorTime, found }, () => text);
}

async function rebuild(context: CliContext, servers: Servers, options: RebuildFlags) {
  const { yes, now, json, forgedAfter } = options;
  const { config, source, etcd, witness } = servers;
  const keys = namespaceKeys(config.etcd.prefix, config.datacenterId);
  const wanted = descriptorOf(config, randomUUID());
  const highest = forgedAfter === undefined ? undefined : toTicks(config.layout, wallMs(forgedAfter));
  const bindings = bindingsOf(keys, config);
  const before = believed(await readStoredNamespace(etcd, witness, keys), wanted, highest);
  requireNoOwners(before.owners);
  const refusals = await bindingConflicts(etcd, bindings);
  if (refusals.length > 0) throw new IdallocError('NAMESPACE_MISMATCH', refusals.join(' '));
  const found = viewFound(config, before);
  if (before.descriptor !== undefined && found.uuid !== null) requireDescriptor(before.descriptor, wanted);
  const ledger = await searchLedgers(context, config, source, await ledgersOf(servers, options)).catch(withLedgerHint);
  const view = viewFound(config, before, ledger);
  if (json !== true) context.err(foundText(view));
  const time = await confirmedTime(context, now, lastUseMs(config, before, ledger));
  const { reserveMs } = config.timing;
  if (forgedAfter !== undefined) requireUnreachable(forgedAfter, time + reserveMs);
  const floorOf = (found: StoredNamespace): Ticks =>
    floorAbove(config.layout, {
      found: believed(found, wanted, highest),
      ledger: ledger.highest,
      now: time,
      reserveMs,
    });
  const from = timeText(tickStartMs(config.layout, floorOf(before)));
  const where = `${keys.root} on ${config.etcd.endpoints.join(', ')}`;
  await confirm(context, `Rebuild ${where}, with IDs from ${from} on? None of its workers may run.`, yes);
  const given = {
    ledger: options.ledger,
    without_ledger: options.withoutLedger,
    now: timeText(time),
    forged_after: forgedAfter === undefined ? undefined : timeText(forgedAfter),
    uuid: wanted.uuid,
  };
  const command = { command: 'namespace rebuild', arguments: given };
  const { floor } = await journaled({ context, etcd, config }, command, (note) => {
    note(`allocates from ${from} on; the namespace before it was ${found.uuid ?? 'unknown'}`);
    return rebuildNamespace({ etcd, witness, keys, wanted, bindings, floorOf });
  });
  return { uuid: wanted.uuid, floor, config, found: view };
}

/** A worker may have reserved, and used, up to a reservation ahead of its clock. Later witnesses are forged. */
function requireUnreachable(forgedAfter: number, reachableMs: number): void {
  if (forgedAfter >= reachableMs) return;
  const least = timeText(reachableMs);
  throw new IdallocError(
    'REBUILD_REFUSED',
    `a worker may have reserved up to ${least}: set --forged-after to that or later`,
  );
}

/** Every pair of topics of the namespace has a ledger. After etcd was wiped, only --ledger names the others. */
async function ledgersOf({ config, etcd }: Servers, { ledger = [], withoutLedger = [] }: RebuildFlags) {
  const bound = await boundLedgers(etcd, namespaceKeys(config.etcd.prefix, config.datacenterId));
  const all = new Set([config.topics.ledger, ...bound, ...ledger]);
  for (const gone of withoutLedger) all.delete(gone);
  return [...all];
}

/** A missing ledger is an error: it may exist, hidden from this user, with higher IDs than the others. */
function withLedgerHint(error: unknown): never {
  if (!(error instanceof IdallocError) || error.code !== 'TOPIC_INVALID') throw error;
  const message = `${error.message}; if it was deleted, ignore it with --without-ledger`;
  throw new IdallocError('TOPIC_INVALID', message, { cause: error });
}

/** The start of the last tick that is known to be reserved or used. */
function lastUseMs({ layout }: Config, found: StoredNamespace, ledger: LedgerFound): WallMs | undefined {
  const { ceilings, witnesses } = usedTicks(found);
  const known = [ceilings, witnesses, ledger.highest].filter((at) => at !== undefined);
  return known.length === 0 ? undefined : wallMs(Math.max(...known.map((at) => tickStartMs(layout, at))));
}

interface Servers {
  readonly config: Config;
  readonly source: Source;
  readonly etcd: EtcdPort;
  readonly witness: WitnessPort;
}

/** Runs `use` with everything connected, and the witness topic read to its end; closes everything afterwards. */
async function withServers<T>(context: CliContext, use: (servers: Servers) => Promise<T>): Promise<T> {
  const config = loadWorkerConfig(context.env);
  return await withCluster(context, config, (source) =>
    withEtcd(config.etcd, async (etcd) => {
      await wholeTopic(source, config.topics.witness); // throws if it does not exist
      await using stack = new AsyncDisposableStack();
      const tail = stack.adopt(
        ledgerTail(source.cluster, source.runtime, () => undefined),
        (one) => one.close(),
      );
      const witness = startWitness({ ...source, config, tail });
      await witnessReadToEnd(witness);
      return await use({ config, source, etcd, witness });
    }),
  );
}

/** A namespace that was idle for longer, or a clock further behind its last use, needs a confirmation. */
const MAX_IDLE_MS = 24 * 3_600_000;
const MAX_BEHIND_MS = 60_000;
const AGREEMENT_MS = 60_000;

/**
 * The current time, confirmed. New IDs start above it, so a clock that is years ahead would use up the layout, and one
 * that is behind could repeat IDs. `supplied` (--now), or else this machine's clock, is accepted when the last use was
 * within the day before it. Otherwise both have to agree, or the user has to type the date.
 *
 * @throws IdallocError NOT_CONFIRMED
 */
export async function confirmedTime(
  { now, terminal, ask }: Pick<CliContext, 'now' | 'terminal' | 'ask'>,
  supplied: number | undefined,
  lastUse: WallMs | undefined,
): Promise<WallMs> {
  const clock = now();
  const time = wallMs(supplied ?? clock);
  const likely = lastUse !== undefined && time >= lastUse - MAX_BEHIND_MS && time <= lastUse + MAX_IDLE_MS;
  if (likely || (supplied !== undefined && Math.abs(supplied - clock) <= AGREEMENT_MS)) return time;
  const traces = lastUse === undefined ? 'no earlier use was found' : `the last use was ${timeText(lastUse)}`;
  const suspicion = `The time is given as ${timeText(time)}, but ${traces}.`;
  if (!terminal.input || !terminal.errors) {
    throw new IdallocError('NOT_CONFIRMED', `${suspicion} Set this machine's clock, and pass the same time with --now`);
  }
  const typed = await ask(`${suspicion} Type today's date in UTC, as 2026-06-02: `);
  if (timeText(time).startsWith(`${typed.trim()}T`)) return time;
  throw new IdallocError('NOT_CONFIRMED', `that is not the date of ${timeText(time)}; nothing was changed`);
}

export type EtcdRole = 'worker' | 'operator' | 'admin';

export interface RightsFlags extends JsonFlag {
  readonly user: string;
  readonly role: EtcdRole;
}

/** A right in etcd on one key, or on all keys with this prefix. */
export interface EtcdRight {
  readonly permission: 'read' | 'readwrite';
  readonly key: string;
  readonly isPrefix: boolean;
}

/**
 * The least rights of each role: on the datacenter's keys, on what etcd remembers of its ledgers, on the key that all
 * namespaces of the ID space share, and on the journal, which is none of the workers' business.
 */
export function etcdRightsOf(role: EtcdRole, config: Pick<Config, 'idSpace' | 'datacenterId' | 'etcd'>): EtcdRight[] {
  const permission = role === 'operator' ? 'read' : 'readwrite';
  const { etcd, datacenterId } = config;
  const roots = [namespaceKeys(etcd.prefix, datacenterId).root, ledgersRoot(etcd.prefix, datacenterId)];
  if (role !== 'worker') roots.push(journalKeys(etcd.prefix, datacenterId).root);
  return [
    ...roots.map((key) => ({ permission, key, isPrefix: true }) as const),
    { permission, key: claimKey(config.idSpace, datacenterId), isPrefix: false },
  ];
}

/** Prints the rights of a role, as commands. */
export function runRights(context: CliContext, { user, role, json }: RightsFlags): void {
  const rights = etcdRightsOf(role, loadWorkerConfig(context.env));
  const commands = etcdCommands(user, rights);
  present(context, json, { user, role, rights, commands }, () => commands.map((command) => `${command}\n`).join(''));
}

/** Each user gets a role of the same name. */
function etcdCommands(user: string, rights: readonly EtcdRight[]): string[] {
  const grants = rights.map(
    ({ permission, key, isPrefix }) =>
      `etcdctl role grant-permission ${isPrefix ? '--prefix ' : ''}${user} ${permission} ${quoted(key)}`,
  );
  return [`etcdctl role add ${user}`, ...grants, `etcdctl user add ${user}`, `etcdctl user grant-role ${user} ${user}`];
}
