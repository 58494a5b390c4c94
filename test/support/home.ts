import { partitionFor } from '../../src/kafka/records/record.ts';

/** A correlation ID that begins with `name`, with this home partition. */
export function idFor(name: string, partition: number, partitions: number): string {
  for (let tries = 0; ; tries += 1) {
    const id = tries === 0 ? name : `${name}.${tries}`;
    if (partitionFor(Buffer.from(id), partitions, () => 0) === partition) return id;
  }
}
