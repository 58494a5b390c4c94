/** How often it is looked whether the texts have changed, at the most. */
const LOOK_MS = 1_000;

export interface RenewedOptions<T> {
  /** The texts as they are now. */
  readonly read: () => readonly string[];
  /** Throws for texts that are not usable. */
  readonly make: (texts: readonly string[]) => T;
  readonly monotonicMs: () => number;
  /** Told once of each cause for going on with what was there before. */
  readonly onFault: (error: unknown) => void;
}

/**
 * What is made of texts that may change: made anew at the first call a second or more after they did. Where the new ones are
 * not usable the old ones count on. Throws what `make` throws for the first texts.
 */
export function renewed<T>({ read, make, monotonicMs, onFault }: RenewedOptions<T>): () => T {
  let tried = read().join('\0');
  let value = make(tried.split('\0'));
  let lookedMs = monotonicMs();
  let told = '';
  const look = () => {
    const texts = read().join('\0');
    if (texts === tried) return;
    tried = texts;
    value = make(texts.split('\0'));
    told = '';
  };
  return () => {
    if (monotonicMs() - lookedMs < LOOK_MS) return value;
    lookedMs = monotonicMs();
    try {
      look();
    } catch (error) {
      if (told !== String(error)) onFault(error);
      told = String(error);
    }
    return value;
  };
}
