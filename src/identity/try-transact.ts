import { IdallocError } from '../errors.ts';
import type { Compare, EtcdPort, Operation } from './ports.ts';

/** A write whose answer decides nothing. Without one it may have happened or not: the next read tells. */
export async function tryTransact(
  etcd: Pick<EtcdPort, 'transact'>,
  compares: readonly Compare[],
  operations: readonly Operation[],
): Promise<void> {
  try {
    await etcd.transact(compares, operations);
  } catch (error) {
    if (!(error instanceof IdallocError && error.retryable)) throw error;
  }
}
