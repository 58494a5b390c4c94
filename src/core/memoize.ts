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
