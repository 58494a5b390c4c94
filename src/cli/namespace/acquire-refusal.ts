import { randomUUID } from 'node:crypto';
import { descriptorOf } from '../../codec/descriptor.ts';
import type { WitnessView } from '../../codec/witness.ts';
import type { Config } from '../../config/config.ts';
import { IdallocError } from '../../errors.ts';
import { requireDescriptor } from '../../identity/namespace.ts';
import type { Snapshot } from '../../identity/snapshot.ts';
import { requireNotRestored, requireUnused } from '../../identity/witness.ts';

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
