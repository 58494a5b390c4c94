/**
 * The function with its results kept by argument, for pure functions that are asked the same again and again. At most
 * `max` results are held; when they are more, all of them go.
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
