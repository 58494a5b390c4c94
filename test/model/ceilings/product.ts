import { encodeCeiling, encodeDescriptor } from '../../../src/codec/namespace-values.ts';
import type { Witness, WitnessView } from '../../../src/codec/witness.ts';
import { monoMs, ticks, wallMs } from '../../../src/core/units.ts';
import { IdallocError } from '../../../src/errors.ts';
import type { KeyValue } from '../../../src/identity/identity-ports.ts';
import { readCeiling } from '../../../src/identity/keys.ts';
import type { Namespace } from '../../../src/identity/namespace.ts';
import { usedTicks } from '../../../src/identity/rebuild.ts';
import * as product from '../../../src/identity/term.ts';
import { keyNameOf, othersThan, requireNoRival, requireNotRestored } from '../../../src/identity/witness.ts';
import { descriptorOf } from '../../identity/stage.ts';
import type { Etcd, Mark, Process, Topic } from './state.ts';

/** What the product concludes from what it reads, in the model's words. */

/** A term's writes that had no answer are told apart by the numbers behind its lease. */
const LEASES = 16;
const SENT = { wall: wallMs(0), mono: monoMs(0) };

const namespaces = new Map<number, Namespace>();

function namespaceOf(number: number): Namespace {
  const known = namespaces.get(number);
  if (known !== undefined) return known;
  const descriptor = descriptorOf({ uuid: uuidOf(number) });
  const made = { descriptor, descriptorValue: encodeDescriptor(descriptor) };
  namespaces.set(number, made);
  return made;
}

const uuidOf = (number: number): string => `0000000${number}-0000-4000-8000-000000000000`;
const leaseOf = (nonce: number): bigint => BigInt(nonce * LEASES);
/** Nonce 0 is that of a rebuild, as far as there was one. */
const nonceOf = (nonce: number): string => (nonce === 0 ? 'rebuild-0' : `n${nonce}`);

function ceilingIn({ tick, nonce, changed }: Etcd): KeyValue {
  const value = encodeCeiling({ ticks: ticks(tick), nonce: nonceOf(nonce) });
  return { key: 'ceiling', value, createRevision: 1n, modRevision: BigInt(changed), leaseId: 0n };
}

function ownerIn({ fence, lease }: Etcd): KeyValue | undefined {
  if (fence === 0) return undefined;
  const revision = BigInt(fence);
  const value = Buffer.alloc(0);
  return { key: 'owner', value, createRevision: revision, modRevision: revision, leaseId: leaseOf(lease) };
}

function toWitness({ namespace, fence, lease, tick, revision }: Mark): Witness {
  const name = { uuid: uuidOf(namespace), workerId: 0, fence: BigInt(fence), leaseId: BigInt(lease) };
  return { ...name, ticks: ticks(tick), modRevision: BigInt(revision) };
}

function toView({ seal, marks }: Topic): WitnessView {
  return { seal: seal === 1 ? undefined : uuidOf(seal), witnesses: marks.map(toWitness), unreadable: [] };
}

function isRefused(judge: () => void): boolean {
  try {
    judge();
    return false;
  } catch (error) {
    if (error instanceof IdallocError) return true;
    throw error;
  }
}

/** Whether a claim is made, by what the topic had and etcd has. */
export function mayClaim(view: Topic, etcd: Etcd): boolean {
  const ceiling = readCeiling(ceilingIn(etcd));
  const snapshot = { descriptor: undefined, owners: new Map(), ceilings: new Map([[0, ceiling]]) };
  return !isRefused(() => requireNotRestored(toView(view), snapshot, namespaceOf(etcd.namespace).descriptor));
}

/** The fence and the ceiling of a term whose claim took effect. */
export function claimIn(etcd: Etcd, process: Process): Pick<Process, 'fence' | 'stored' | 'revision'> | undefined {
  const attempt: product.Attempt = {
    namespace: namespaceOf(process.namespace),
    workerId: 0,
    leaseId: leaseOf(process.lease),
    sent: SENT,
    from: ticks(process.from),
    swap: swapOf(process),
    silentWrites: 0,
  };
  const term = product.termOf(attempt, ownerIn(etcd), ceilingIn(etcd));
  return term && { fence: Number(term.fence), ...storedIn(term) };
}

/** What became of a raise: it took effect, may still do so, or the term is lost. */
export function raiseIn(etcd: Etcd, process: Process): Pick<Process, 'stored' | 'revision'> | 'open' | 'lost' {
  const term: product.Term = {
    namespace: namespaceOf(process.namespace),
    workerId: 0,
    leaseId: leaseOf(process.lease),
    fence: BigInt(process.fence),
    sent: SENT,
    stored: {
      ticks: ticks(process.stored),
      nonce: nonceOf(process.own),
      modRevision: BigInt(process.revision),
    },
    unanswered: [swapOf(process)],
    reservation: { from: ticks(process.from), to: ticks(process.to) },
    superseded: [],
    silentWrites: process.silent,
  };
  const found = product.readBack(term, ownerIn(etcd), ceilingIn(etcd));
  if (found.kind === 'lost') return 'lost';
  const now = storedIn(found.term);
  return now.revision === process.revision ? 'open' : now;
}

function storedIn({ stored }: product.Term): Pick<Process, 'stored' | 'revision'> {
  return { stored: stored.ticks, revision: Number(stored.modRevision) };
}

function swapOf({ nonce, wanted, compared }: Process): product.Swap {
  return { nonce: nonceOf(nonce), ticks: ticks(wanted), comparedRevision: BigInt(compared) };
}

/** The witness that a process writes. */
export function markOf(process: Process): Mark {
  const { namespace, fence, stored, revision } = process;
  const { leaseId } = keyNameOf(nameOf(process));
  return { namespace, fence, lease: Number(leaseId), tick: stored, revision };
}

/** The marks that the process's own has replaced; undefined when the topic ends its term. */
export function readPast(topic: Topic, process: Process): readonly Mark[] | undefined {
  const own = nameOf(process);
  const view = toView(topic);
  if (isRefused(() => requireNoRival(view, own))) return undefined;
  const others = new Set(othersThan(view, keyNameOf(own)).map(({ fence, leaseId }) => `${fence}/${leaseId}`));
  const isOther = ({ namespace, fence, lease }: Mark) =>
    namespace === process.namespace && others.has(`${fence}/${lease}`);
  return topic.marks.filter(isOther);
}

function nameOf({ namespace, fence, lease, silent, from }: Process) {
  const name = { uuid: uuidOf(namespace), workerId: 0, fence: BigInt(fence), leaseId: leaseOf(lease) };
  return { ...name, silentWrites: silent, from };
}

/** Everything that ceilings and witnesses show as reserved. */
export function reservedIn(etcd: Etcd, topic: Topic): { readonly ceilings: number; readonly all: number } {
  const kv = ceilingIn(etcd);
  const ceilings = new Map([[0, { kv, stored: readCeiling(kv) }]]);
  const used = usedTicks({ descriptor: undefined, owners: new Map(), ceilings, view: toView(topic) });
  return { ceilings: etcd.tick, all: Math.max(used.ceilings ?? 0, used.witnesses ?? 0, used.rebuilt ?? 0) };
}
