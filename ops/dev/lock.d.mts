import type { ProcessIdentity } from './process-identity.mjs';

export type LockResult =
  | { readonly acquired: true; readonly release: () => void }
  | { readonly acquired: false; readonly holder: ProcessIdentity };
export function tryLock(path: string): LockResult | undefined;
export interface LockWait {
  readonly timeoutMs: number;
  readonly onWait?: (holder: ProcessIdentity) => void;
  readonly signal?: AbortSignal | undefined;
}
export function acquireLock(path: string, options: LockWait): Promise<() => void>;
