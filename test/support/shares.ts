import { decodeStandbys } from '../../src/kafka/loops/copies-format.ts';
import { decodeAssignment } from '../../src/kafka/loops/group-protocol.ts';
import type { Realm } from './realm.ts';
import type { LogLine, WorkerProcess } from './worker-process.ts';

/** What a worker has of the partitions, in their order. */
export interface Share {
  readonly partitions: readonly number[];
  readonly standbys: readonly number[];
  readonly warmups: readonly number[];
}

const NONE: Share = { partitions: [], standbys: [], warmups: [] };

/** A worker's copy of a ledger partition, as its metrics tell of it. */
export interface ToldCopy {
  readonly state: string;
  readonly lag: number;
}

export const isJoin = ({ msg }: LogLine) => msg === 'joined the request group';

export function shareIn(line: LogLine | undefined): Share {
  const { partitions, standbys, warmups } = line === undefined ? NONE : (line as unknown as Share);
  return { partitions, standbys, warmups };
}

/** What the group gave to a worker last. */
export function shareOf(worker: WorkerProcess): Share {
  return shareIn(worker.lines.findLast(isJoin));
}

/** What the coordinator has for each member, whoever that is. */
export async function sharesOfGroup({ admin, groupId }: Realm): Promise<readonly Share[]> {
  const { groups } = await admin.describeGroups([groupId]);
  return (groups[0]?.members ?? []).map(({ memberAssignment }) => {
    const { assigned, userData } = decodeAssignment(memberAssignment);
    const standing = userData === null ? undefined : decodeStandbys(userData);
    const { standbys = [], warmups = [] } = standing ?? {};
    return { partitions: assigned.flatMap(({ partitions }) => partitions), standbys, warmups };
  });
}

const STATE = /^idalloc_partition_state\{partition="(\d+)",state="(\w+)"\} 1$/gm;
const LAG = /^idalloc_ledger_lag_records\{partition="(\d+)"\} (\d+)$/gm;

/** The copies that a worker says in its metrics to have, by partition. */
export async function copiesOf(worker: WorkerProcess): Promise<ReadonlyMap<number, ToldCopy>> {
  const text = await (await worker.ops('/metrics')).text();
  const lags = new Map([...text.matchAll(LAG)].map(([, partition, lag]) => [partition, Number(lag)]));
  const copies = [...text.matchAll(STATE)].map(([, partition, state = '']) => {
    return [Number(partition), { state, lag: lags.get(partition) ?? Number.NaN }] as const;
  });
  return new Map(copies.sort(([one], [other]) => one - other));
}

/** The copies that follow from a share once they are all complete. */
export function completeCopies({ partitions, standbys }: Share): ReadonlyMap<number, ToldCopy> {
  const copies = [...partitions, ...standbys].sort((one, other) => one - other);
  const stateOf = (partition: number) => (partitions.includes(partition) ? 'serving' : 'following');
  return new Map(copies.map((partition) => [partition, { state: stateOf(partition), lag: 0 }]));
}
