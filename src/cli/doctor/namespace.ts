import { compareDescriptors, decodeDescriptor, descriptorOf } from '../../codec/descriptor.ts';
import type { WitnessView } from '../../codec/witness.ts';
import type { Config } from '../../config/config.ts';
import { describeError } from '../../errors.ts';
import { namespaceKeys } from '../../identity/keys.ts';
import type { Snapshot } from '../../identity/snapshot.ts';
import { viewNamespace } from '../lease-view.ts';
import { acquireRefusal } from '../namespace/acquire-refusal.ts';
import { type Check, fault, ok, warn } from './checks.ts';

const NAME = 'namespace';
const REBUILD =
  "stop the workers of this datacenter that still serve, then run 'idalloc namespace rebuild'; if workers with another " +
  'etcd serve it, use another DATACENTER_ID instead';
const CONFIGURE =
  'configure what is stored (LAYOUT, LAYOUT_EPOCH_MS and the other LAYOUT_*, POOL_*), or use another DATACENTER_ID';

export interface NamespaceFound {
  readonly snapshot: Snapshot;
  /** The witnesses, read before etcd; undefined when the witness topic could not be read. */
  readonly view: WitnessView | undefined;
  /** Why the bindings in etcd exclude these workers. */
  readonly refusals: readonly string[];
}

/** Brokers of another cluster than the one that is bound. */
export function judgeCluster(bound: string, found: string): Check {
  const detail = `CLUSTER_CHANGED: the ledger is bound to the Kafka cluster ${bound}, but these brokers belong to ${found}`;
  const fix = "correct KAFKA_BROKERS; or if this cluster replaces the other one, run 'idalloc namespace adopt-cluster'";
  return fault(NAME, detail, fix);
}

/** The namespace in etcd, as a worker would judge it. */
export function judgeNamespace(config: Config, { snapshot, view, refusals }: NamespaceFound, nowMs: number): Check {
  const { root } = namespaceKeys(config.etcd.prefix, config.datacenterId);
  if (refusals.length > 0) {
    return fault(
      NAME,
      refusals.join(' '),
      'configure what is bound, or create a namespace under another DATACENTER_ID',
    );
  }
  const differing = differences(config, snapshot);
  if (differing !== undefined) return fault(NAME, `${root}: ${differing}`, CONFIGURE);
  const refusal = view && acquireRefusal(config, snapshot, view, refusals);
  const fix = refusal?.code === 'NAMESPACE_MISMATCH' ? CONFIGURE : REBUILD;
  if (refusal !== undefined) return fault(NAME, describeError(refusal), fix);
  const found = describe(root, snapshot, nowMs);
  if (found.missing > 0) return fault(NAME, `${found.missing} ceilings are missing below ${root}`, REBUILD);
  if (view !== undefined) return ok(NAME, found.text);
  const unread = `${found.text}; not compared with the witness topic, which could not be read`;
  return warn(NAME, unread, 'make the witness topic readable: it shows whether etcd was rolled back');
}

function differences(config: Config, { descriptor }: Snapshot): string | undefined {
  if (descriptor === undefined) return undefined;
  const stored = decodeDescriptor(descriptor.value);
  const differing = compareDescriptors(stored, descriptorOf(config, stored.uuid));
  if (differing.length === 0) return undefined;
  return differing.map((one) => `${one.field} is ${one.stored}, configured ${one.wanted}`).join('; ');
}

function describe(
  root: string,
  snapshot: Snapshot,
  nowMs: number,
): { readonly text: string; readonly missing: number } {
  if (snapshot.descriptor === undefined) {
    return { text: `${root} does not exist yet: the first worker creates it`, missing: 0 };
  }
  const { layout, leases } = viewNamespace(root, snapshot, nowMs, true);
  const held = leases.filter(({ holder }) => holder !== null).length;
  const missing = leases.filter(({ worker_id }) => !snapshot.ceilings.has(worker_id)).length;
  return { text: `${root}: layout ${layout}, ${held} of ${leases.length} worker IDs held`, missing };
}
