/** Groups partitions by topic, as requests need them. */
export function byTopic<P extends { readonly topic: string }, T>(
  partitions: readonly P[],
  write: (partition: P) => T,
): { readonly topic: string; readonly partitions: T[] }[] {
  const topics = new Map<string, T[]>();
  for (const partition of partitions) {
    const written = topics.get(partition.topic);
    if (written === undefined) topics.set(partition.topic, [write(partition)]);
    else written.push(write(partition));
  }
  return [...topics].map(([topic, written]) => ({ topic, partitions: written }));
}

/** Flattens the partitions of all topics, as in the responses of the port. */
export function flat<P, R>(
  responses: readonly { readonly topic: string; readonly partitions: readonly P[] }[],
  read: (partition: P) => R,
): (R & { readonly topic: string })[] {
  return responses.flatMap(({ topic, partitions }) => partitions.map((partition) => ({ topic, ...read(partition) })));
}
