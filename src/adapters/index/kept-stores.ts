import { hash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { describeError } from '../../errors.ts';
import {
  ForeignStore,
  isStoreError,
  openStore,
  replaceStore,
  STORE_FILES,
  type Store,
  type StoreOptions,
} from './store.ts';

/** Stores of other ledgers that are kept; older ones are deleted. */
const MAX_KEPT = 2;
const FOLDER = 'kept';

/**
 * Opens the store in a locked directory. One that is damaged or of another format is replaced by an empty one, and one
 * of another ledger is kept aside; `wiped` says why. Throws as openStore does, but no StoreError.
 */
export function openOrReplace(
  directory: string,
  identity: string,
  options: StoreOptions,
): { readonly store: Store; readonly wiped?: string } {
  const first = tryToOpen(directory, identity, options);
  if ('store' in first) return first;
  const { error } = first;
  const kept = error instanceof ForeignStore ? exchangeStores(directory, error.identity, identity) : undefined;
  const wiped = `${describeError(error)}${kept === undefined ? '' : `; it is kept in ${kept}`}`;
  const again = kept === undefined ? first : tryToOpen(directory, identity, options);
  return { store: 'store' in again ? again.store : replaceStore(directory, identity, options), wiped };
}

function tryToOpen(directory: string, identity: string, options: StoreOptions): { store: Store } | { error: unknown } {
  try {
    return { store: openStore(directory, identity, options) };
  } catch (error) {
    if (!isStoreError(error)) throw error;
    return { error };
  }
}

/**
 * Moves a closed store of another ledger aside, and the one of the wanted ledger back, if it was kept: a wrong
 * KAFKA_BROKERS must not cost the index, nor a cluster that comes back. Returns the folder where the store is now;
 * undefined, and moves nothing, if the store is of the same ledger in another format. Both are named by their
 * identities.
 */
function exchangeStores(directory: string, stored: string, wanted: string): string | undefined {
  const [other, own] = [ledgerIn(stored), ledgerIn(wanted)];
  if (other === own) return undefined;
  const [aside, back] = [folderOf(directory, other), folderOf(directory, own)];
  rmSync(aside, { recursive: true, force: true });
  mkdirSync(aside, { recursive: true, mode: 0o700 });
  moveStore(directory, aside);
  if (existsSync(back)) moveStore(back, directory);
  rmSync(back, { recursive: true, force: true });
  for (const old of newestFirst(join(directory, FOLDER)).slice(MAX_KEPT)) rmSync(old, { recursive: true, force: true });
  return aside;
}

function moveStore(from: string, to: string): void {
  for (const file of STORE_FILES) if (existsSync(join(from, file))) renameSync(join(from, file), join(to, file));
}

function newestFirst(folder: string): readonly string[] {
  const all = readdirSync(folder).map((name) => join(folder, name));
  return all.toSorted((one, other) => statSync(other).mtimeMs - statSync(one).mtimeMs);
}

/** The ledger of a store, whatever its format. */
function ledgerIn(identity: string): string {
  const { clusterId, ledgerTopic, partitions } = JSON.parse(identity) as Readonly<Record<string, unknown>>;
  return JSON.stringify({ clusterId, ledgerTopic, partitions });
}

function folderOf(directory: string, ledger: string): string {
  return join(directory, FOLDER, hash('sha256', ledger).slice(0, 16));
}
