import { inMicrotask } from '../async/microtask.ts';

/** Events of the client. Hooks run in a microtask of their own, so one that throws does not disturb the client. */
export interface ClientHooks {
  /** A request is sent; attempt is 1 the first time. */
  readonly onRequest?: (event: { correlationId: string; count: number; attempt: number }) => void;
  /** A request was answered with a batch. */
  readonly onReply?: (event: { correlationId: string; count: number; latencyMs: number; replayed: boolean }) => void;
  /** A batch was added to the buffer, which now holds `buffered` IDs. */
  readonly onBatch?: (event: { count: number; buffered: number; lowWater: number }) => void;
  /** For logs: an operation failed and will be retried. At most once in 10 s per cause. */
  readonly onError?: (error: Error) => void;
}

export function callHook<K extends keyof ClientHooks>(
  hooks: ClientHooks,
  name: K,
  event: Parameters<NonNullable<ClientHooks[K]>>[0],
): void {
  const hook = hooks[name] as ((event: unknown) => void) | undefined;
  if (hook !== undefined) inMicrotask(() => hook.call(hooks, event));
}
