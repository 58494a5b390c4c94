/** How often it is looked whether the texts have changed, at the most. */
const LOOK_MS = 1_000;

/**
 * What is made of texts that may change while the process runs: made at once, and anew at the first call a second or more
 * after they did. Throws what `make` throws; the value before stays, and the same texts are not tried again.
 */
export function renewed<T>(
  read: () => readonly string[],
  make: (texts: readonly string[]) => T,
  monotonicMs: () => number,
): () => T {
  let seen = read();
  let value = make(seen);
  let lookedMs = monotonicMs();
  return () => {
    if (monotonicMs() - lookedMs < LOOK_MS) return value;
    lookedMs = monotonicMs();
    const texts = read();
    if (texts.every((text, i) => text === seen[i])) return value;
    seen = texts;
    value = make(texts);
    return value;
  };
}
