/** A rendering serves everybody who asks within so long of its beginning. */
const SHARED_MS = 1_000;

/**
 * Renders at most once a second, however many ask: those who ask meanwhile share what was begun last. What fails is not
 * shared with those who come after.
 */
export function sharedRendering<T>(render: () => Promise<T>, monotonicMs: () => number): () => Promise<T> {
  let last: { readonly beganMs: number; readonly result: Promise<T> } | undefined;
  let underWay = false;
  return () => {
    const nowMs = monotonicMs();
    if (last !== undefined && (underWay || nowMs - last.beganMs < SHARED_MS)) return last.result;
    underWay = true;
    const result = render().finally(() => {
      underWay = false;
    });
    last = { beganMs: nowMs, result };
    result.catch(() => {
      last = undefined;
    });
    return result;
  };
}
