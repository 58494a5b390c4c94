/** Returns the current password, key or certificate. Call it for each use, since its file may be replaced. */
export type Secret = () => string;

/** The texts are checked for changes at most this often. */
const CHECK_MS = 1_000;

/**
 * A value derived from texts that may change while the process runs: derived immediately, and again at the first call
 * at least a second after a change. Throws what `make` throws; then the previous value stays in use, and the same texts
 * are not tried again.
 */
export function renewed<T>(
  read: () => readonly string[],
  make: (texts: readonly string[]) => T,
  monotonicMs: () => number,
): () => T {
  let seen = read();
  let value = make(seen);
  let checkedMs = monotonicMs();
  return () => {
    if (monotonicMs() - checkedMs < CHECK_MS) return value;
    checkedMs = monotonicMs();
    const texts = read();
    if (texts.every((text, i) => text === seen[i])) return value;
    seen = texts;
    value = make(texts);
    return value;
  };
}
