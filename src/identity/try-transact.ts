import { IdallocError } from '../errors.ts';
import type { Compare, EtcdPort, KeyOperation } from './ports.ts';

/**
 * A write whose outcome is read back afterwards. Without a response it may have taken effect or not. Rejects with
 * ETCD_REFUSED.
 */
export async function tryTransact(
  etcd: Pick<EtcdPort, 'transact'>,
  compares: readonly Compare[],
  operations: readonly KeyOperation[],
): Promise<void> {
  try {
    await etcd.transact(compares, operations);
  } catch (error) {
    if (!(error instanceof IdallocError && error.code === 'ETCD_UNAVAILABLE')) throw error;
  }
}
