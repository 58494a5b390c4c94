import type { LogLine, WorkerProcess } from './worker-process.ts';

/** A worker's share of the partitions, in order. */
export interface Share {
  readonly partitions: readonly number[];
  readonly standbys: readonly number[];
  readonly warmups: readonly number[];
}

const NONE: Share = { partitions: [], standbys: [], warmups: [] };

/** A worker's copy of a ledger partition, by its metrics. */
export interface ReportedCopy {
  readonly state: string;
  readonly lag: number;
}

export const isJoin = ({ msg }: LogLine) => msg === 'joined the request group';

export function shareIn(line: LogLine | undefined): Share {
  const { partitions, standbys, warmups } = line === undefined ? NONE : (line as unknown as Share);
  return { partitions, standbys, warmups };
}

/** The share that the group assigned to a worker last. */
export function shareOf(worker: WorkerProcess): Share {
  return shareIn(worker.lines.findLast(isJoin));
}

const STATE = /^idalloc_partition_state\{partition="(\d+)",state="(\w+)"\} 1$/gm;
const LAG = /^idalloc_ledger_lag_records\{partition="(\d+)"\} (\d+)$/gm;

/** The copies of a worker by partition, from its metrics. */
export async function copiesOf(worker: WorkerProcess): Promise<ReadonlyMap<number, ReportedCopy>> {
  const text = await (await worker.ops('/metrics')).text();
  const lags = new Map([...text.matchAll(LAG)].map(([, partition, lag]) => [partition, Number(lag)]));
  const copies = [...text.matchAll(STATE)].map(([, partition, state = '']) => {
    return [Number(partition), { state, lag: lags.get(partition) ?? Number.NaN }] as const;
  });
  return new Map(copies.sort(([one], [other]) => one - other));
}

/** The copies of a share when all are complete. */
export function completeCopies({ partitions, standbys }: Share): ReadonlyMap<number, ReportedCopy> {
  const copies = [...partitions, ...standbys].sort((one, other) => one - other);
  const stateOf = (partition: number) => (partitions.includes(partition) ? 'serving' : 'following');
  return new Map(copies.map((partition) => [partition, { state: stateOf(partition), lag: 0 }]));
}
