/**
 * Caches the results of a pure function by its argument. When there are `max` results, the cache is cleared.
 */
export function memoize<V>(make: (argument: string) => V, max: number): (argument: string) => V {
  const known = new Map<string, V>();
  return (argument) => {
    const before = known.get(argument);
    if (before !== undefined) return before;
    const made = make(argument);
    if (known.size >= max) known.clear();
    known.set(argument, made);
    return made;
  };
}

/** At each call so many entries are looked at. */
const LOOKS = 16;

/**
 * Whether a map of at most `max` entries has room for one more. If it is full, the oldest few that are not needed are
 * removed, and the others of these become the newest.
 */
export function hasRoom<K, V>(map: Map<K, V>, max: number, isNeeded: (value: V) => boolean): boolean {
  if (map.size < max) return true;
  let looks = LOOKS;
  for (const [key, value] of map) {
    map.delete(key);
    if (isNeeded(value)) map.set(key, value);
    looks -= 1;
    if (looks === 0) break;
  }
  return map.size < max;
}
