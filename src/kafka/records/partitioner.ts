/**
 * The partition of a record: by the hash of its key, as Kafka's Java client and kafkajs choose it, so that the records
 * of a key share a partition whichever client writes them. Records without a key go to `next()`, any integer from 0 on,
 * modulo the number of partitions.
 */
export function partitionFor(key: Buffer | null, partitions: number, next: () => number): number {
  return (key === null ? next() : murmur2(key) & 0x7fff_ffff) % partitions;
}

const SEED = 0x9747b28c;
const MULTIPLIER = 0x5bd1e995;

/** MurmurHash2, 32 bits, little endian (Austin Appleby, public domain), with the seed that Kafka's clients use. */
function murmur2(data: Buffer): number {
  let hash = SEED ^ data.length;
  const words = data.length & ~3;
  for (let at = 0; at < words; at += 4) {
    let word = Math.imul(data.readInt32LE(at), MULTIPLIER);
    word = Math.imul(word ^ (word >>> 24), MULTIPLIER);
    hash = Math.imul(hash, MULTIPLIER) ^ word;
  }
  if (words < data.length) {
    for (let at = data.length - 1; at >= words; at -= 1) hash ^= (data[at] ?? 0) << (8 * (at - words));
    hash = Math.imul(hash, MULTIPLIER);
  }
  hash = Math.imul(hash ^ (hash >>> 13), MULTIPLIER);
  return hash ^ (hash >>> 15);
}
