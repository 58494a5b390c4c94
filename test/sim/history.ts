import type { IdBatch } from '../../src/codec/id-batch.ts';
import type { IdReply } from '../../src/codec/id-reply.ts';

/**
 * What happened in a simulation, as plain data, seen from outside of the code under test. `order` numbers everything
 * that was recorded, so that of two things it is known which came first.
 */
export interface History {
  readonly requests: Asked[];
  readonly issued: Issued[];
  readonly grants: Grant[];
  readonly ceilings: CeilingChange[];
  readonly entries: Entry[];
  readonly appends: Append[];
  readonly trims: Trim[];
  readonly losses: Loss[];
  /** When etcd was set back; fences come a second time then. */
  readonly setBacks: number[];
  readonly told: Told[];
  readonly commits: Commit[];
  /** Errors that nobody may meet here, whatever goes wrong around: defects. */
  readonly defects: string[];
  /** Virtual milliseconds from the end of the faults until everything was answered; undefined when it never was. */
  healedMs: number | undefined;
}

/** A record of the request topic. */
export interface Asked {
  readonly partition: number;
  readonly offset: number;
  readonly correlationId: string;
  readonly count: number;
  readonly replyTopic: string;
}

/** A range that the allocator gave, with what the store said when it was taken. */
export interface Issued {
  readonly order: number;
  readonly allocation: number;
  readonly workerId: number;
  readonly fence: bigint;
  /** Where the reservation of its reign begins. */
  readonly from: number;
  readonly first: bigint;
  readonly last: bigint;
  readonly tick: number;
  /** The ceiling stored at that time; undefined when there was none. */
  readonly ceiling: number | undefined;
}

/** Authority that the allocator was given and used. */
export interface Grant {
  readonly workerId: number;
  readonly fence: bigint;
  readonly from: number;
  readonly to: number;
  /** Since the sending of the last renewal of any lease of this process that was answered. */
  readonly sinceRenewalMs: number;
}

/** A stored ceiling that was put in place of another, or deleted. */
interface CeilingChange {
  readonly workerId: number;
  readonly before: number;
  readonly after: number | undefined;
}

/** A decision in the ledger, where it lies and when it landed there. */
export interface Entry {
  readonly order: number;
  readonly partition: number;
  readonly offset: number;
  readonly correlationId: string;
  readonly count: number;
  readonly replyTopic: string;
  readonly batch: IdBatch;
  readonly requestOffset: number;
  /** Where its writer's index ended. */
  readonly end: number;
}

/** One append of a process, from its sending until the process knew the outcome, or gave up. */
interface Append {
  readonly process: string;
  readonly partition: number;
  readonly sent: number;
  ended: number;
  answered: boolean;
}

/** The ledger lost its head. */
interface Trim {
  readonly order: number;
  readonly partition: number;
  readonly low: number;
}

/** The ledger lost its tail, acknowledged or not: no promise of replay outlives that, but everything else does. */
interface Loss {
  readonly order: number;
  readonly partition: number;
  /** The first offset that was lost. */
  readonly from: number;
}

/** A reply in a reply topic, told to the request at (partition, offset). */
export interface Told {
  readonly sent: number;
  readonly landed: number;
  readonly partition: number;
  readonly offset: number;
  readonly topic: string;
  readonly key: string;
  readonly value: Buffer;
  /** What the value says. */
  readonly reply: IdReply;
}

/** An accepted commit: everything below the offset is done with. */
interface Commit {
  readonly sent: number;
  readonly partition: number;
  readonly offset: number;
}

export function emptyHistory(): History {
  return {
    requests: [],
    issued: [],
    grants: [],
    ceilings: [],
    entries: [],
    appends: [],
    trims: [],
    losses: [],
    setBacks: [],
    told: [],
    commits: [],
    defects: [],
    healedMs: undefined,
  };
}
