/** A rendering is shared for this long after it started. */
const SHARED_MS = 1_000;

/**
 * Renders at most once a second: calls in between share the last rendering. Later calls do not share a failure.
 */
export function sharedRendering<T>(render: () => Promise<T>, monotonicMs: () => number): () => Promise<T> {
  let last: { readonly beganMs: number; readonly result: Promise<T> } | undefined;
  let isRendering = false;
  return () => {
    const nowMs = monotonicMs();
    if (last !== undefined && (isRendering || nowMs - last.beganMs < SHARED_MS)) return last.result;
    isRendering = true;
    const result = render().finally(() => {
      isRendering = false;
    });
    last = { beganMs: nowMs, result };
    result.catch(() => {
      last = undefined;
    });
    return result;
  };
}
