/** Events of the client. Each hook is called outside of the client's own path: one that throws harms only itself. */
export interface ClientHooks {
  /** A request goes out; attempt is 1 for the first time. */
  readonly onRequest?: (event: { correlationId: string; count: number; attempt: number }) => void;
  /** A request was answered with a batch. */
  readonly onReply?: (event: { correlationId: string; count: number; latencyMs: number; replayed: boolean }) => void;
  /** A batch came into the buffer, which holds `buffered` IDs now. */
  readonly onBatch?: (event: { count: number; buffered: number; lowWater: number }) => void;
  /** Something failed that is tried again, at most once in 10 s for each cause: for logs. */
  readonly onFault?: (error: Error) => void;
}

export function callHook<K extends keyof ClientHooks>(
  hooks: ClientHooks,
  name: K,
  event: Parameters<NonNullable<ClientHooks[K]>>[0],
): void {
  const hook = hooks[name] as ((event: unknown) => void) | undefined;
  if (hook !== undefined) queueMicrotask(() => hook.call(hooks, event));
}
