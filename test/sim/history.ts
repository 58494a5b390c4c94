import type { IdBatch } from '../../src/codec/id-batch.ts';
import type { IdReply } from '../../src/codec/id-reply.ts';
import type { Origin } from '../../src/codec/request-origin.ts';

/**
 * What happened in a simulation, as plain data, seen from outside of the code under test. `order` numbers everything
 * that was recorded, so that of two things it is known which came first. What is in a topic counts from when readers may
 * see it.
 */
export interface History {
  readonly requests: Asked[];
  readonly firstAsked: Map<string, number>; // by correlation ID
  readonly requestTrims: Trim[];
  readonly issued: Issued[];
  readonly grants: Grant[];
  readonly ceilings: CeilingChange[];
  readonly entries: Entry[];
  readonly marks: Mark[];
  readonly appends: Append[];
  readonly trims: Trim[];
  readonly losses: Loss[];
  /** When etcd was set back; fences come a second time then. */
  readonly setBacks: number[];
  /** When a worker began to refuse because etcd was set back, by its own account. */
  readonly alarms: number[];
  readonly rebuilds: Rebuild[];
  readonly told: Told[];
  readonly letters: Letter[];
  /** Requests that were appended to the partitions of their correlation IDs. */
  readonly forwards: Forward[];
  readonly commits: Commit[];
  /** Errors that must never occur here, whatever else fails: bugs. */
  readonly defects: string[];
  /** Processes whose indexes were lost under them. */
  readonly damaged: string[];
  /** Commits by members for what was not theirs. */
  readonly foreignCommits: string[];
  /** Times at which a worker was ready by its own account, and was not. */
  readonly falselyReady: string[];
  /** Times at which a worker was ready that the namespace must reject. */
  readonly strays: string[];
  /** What became of copies of ledger partitions. */
  readonly copies: CopyEvent[];
  /** Decisions that processes took over into their copies. */
  readonly learned: Learned[];
  /** Copies of another log that a worker reported to its group. */
  readonly falseCopies: string[];
  readonly takeOvers: TakeOver[];
  /** How often entries were read back from the ledger, and members were assigned warm-ups. */
  readBacks: number;
  warmUps: number;
  /** Keys are told apart by a hash that many share; the ledger loses only what retention takes that is as it has to be. */
  sharesHashes: boolean;
  keepsItsTime: boolean;
  /** The most that the wall clock of any machine was ahead, and that of any broker off. */
  aheadMs: number;
  brokersOffMs: number;
  /** How often ledger partitions got another leader, and the request group another generation. */
  elections: number;
  rebalances: number;
  /** Virtual milliseconds from the end of the faults until everything was answered; undefined when it never was. */
  healedMs: number | undefined;
  /** What was still missing when the time was up. */
  missing: readonly string[];
}

/** What became of a process's copy of a ledger partition. */
export interface CopyEvent {
  readonly order: number;
  readonly process: string;
  readonly partition: number;
  /** Opened as the disk had it; emptied, to be restored; restored after either; dropped, since nobody wants it. */
  readonly what: 'opened' | 'emptied' | 'restored' | 'dropped';
  /** Of one that was opened or emptied: the log reached so far at least, whichever broker is asked. */
  readonly logEnd: number;
}

/** A process has an entry in its copy from now on: it knows that the request was decided, and by which batch. */
export interface Learned {
  readonly order: number;
  readonly process: string;
  readonly partition: number;
  readonly offset: number;
  readonly requestOffset: number;
  /** The first ID of the batch. */
  readonly first: bigint;
}

/** An owner was killed while a standby had a complete copy of a partition of it, and nothing else was wrong. */
interface TakeOver {
  readonly order: number;
  readonly partition: number;
  readonly killed: string;
  /** When it was over, in the same order: by then another had to serve the partition. */
  readonly until: number;
  /** Requests that came meanwhile. */
  readonly asked: number;
}

/** A record of the request topic that readers of committed records see. */
export interface Asked {
  readonly order: number;
  /** Of the record, and of all copies that were forwarded. */
  readonly tag: string;
  /** The broker's clock when it was appended. */
  readonly timestampMs: number;
  readonly partition: number;
  readonly offset: number;
  readonly correlationId: string;
  readonly count: number;
  readonly replyTopic: string;
  readonly expiresAtMs?: number | undefined;
  /** Of a record that was forwarded or sent again: what its headers say of the first one. */
  readonly origin?: Origin | undefined;
}

/** A range that the allocator gave, with what the store said when it was taken. */
export interface Issued {
  readonly order: number;
  readonly allocation: number;
  readonly workerId: number;
  readonly fence: bigint;
  /** The start of the reservation of its term. */
  readonly from: number;
  readonly first: bigint;
  readonly last: bigint;
  readonly tick: number;
  /** The ceiling stored at that time; undefined when there was none. */
  readonly ceiling: number | undefined;
}

/** Authority that the allocator was given and used. */
export interface Grant {
  readonly order: number;
  readonly process: string;
  /** What the process is configured with: one of several, of which a namespace knows one. */
  readonly config: string;
  readonly workerId: number;
  readonly fence: bigint;
  readonly from: number;
  readonly to: number;
  /** Since the sending of the last renewal of any lease of this process that was answered. */
  readonly sinceRenewalMs: number;
  /** How far the wall clock is below the highest time that this process has seen since its term started. */
  readonly behindMs: number;
  /** Whether the process has stood still since that renewal was sent. */
  readonly wasPaused: boolean;
}

/** A stored ceiling that was put in place of another, or deleted. */
interface CeilingChange {
  readonly workerId: number;
  readonly before: number;
  readonly after: number | undefined;
  /** How far the new one lies ahead of the true time. */
  readonly aheadMs: number;
}

/** The place of a ledger record, and its writer's knowledge: the index ended at `end` and knew requests up to `through`. */
export interface Mark {
  readonly order: number;
  readonly partition: number;
  readonly offset: number;
  readonly end: number;
  readonly through: number;
  /** The broker's clock when it was appended. */
  readonly appendedAtMs: number;
}

/** The request at (partition, offset) has a copy in the partition that decides it. */
interface Forward {
  readonly landed: number;
  readonly partition: number;
  readonly offset: number;
}

/** A decision in the ledger. */
export interface Entry extends Mark {
  readonly correlationId: string;
  readonly count: number;
  readonly replyTopic: string;
  readonly batch: IdBatch;
  readonly requestOffset: number;
  /** Who wrote it, and when it was sent. */
  readonly process: string;
  readonly sent: number;
}

/** One append of a process, from its sending until the process knew the outcome, or gave up. */
export interface Append {
  readonly process: string;
  /** When the process started. */
  readonly started: number;
  readonly partition: number;
  readonly sent: number;
  ended: number;
  answered: boolean;
  /** Whether it is a marker. */
  readonly marks: boolean;
}

/** A topic lost its head. */
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

/** What a rebuild of the namespace had read when it chose its floor. */
interface Rebuild {
  readonly order: number;
  readonly floor: number;
  /** By worker ID and fence: how far a witness says that the term has reserved. */
  readonly known: ReadonlyMap<string, number>;
}

/** A reply in a reply topic, to the request at (partition, offset). */
export interface Told {
  readonly process: string;
  readonly sent: number;
  readonly landed: number;
  /** The true time when it landed. */
  readonly atMs: number;
  readonly partition: number;
  readonly offset: number;
  readonly topic: string;
  readonly key: string;
  readonly value: Buffer;
  /** What the value says. */
  readonly reply: IdReply;
}

/** A dead letter, for the request at (partition, offset). */
export interface Letter {
  readonly sent: number;
  readonly landed: number;
  readonly partition: number;
  readonly offset: number;
  readonly code: string;
}

/** An accepted commit: everything below the offset is done with. */
interface Commit {
  readonly sent: number;
  readonly accepted: number;
  readonly partition: number;
  readonly offset: number;
}

export function emptyHistory(): History {
  return {
    requests: [],
    firstAsked: new Map(),
    requestTrims: [],
    issued: [],
    grants: [],
    ceilings: [],
    entries: [],
    marks: [],
    appends: [],
    trims: [],
    losses: [],
    setBacks: [],
    alarms: [],
    rebuilds: [],
    told: [],
    letters: [],
    forwards: [],
    commits: [],
    defects: [],
    damaged: [],
    foreignCommits: [],
    falselyReady: [],
    strays: [],
    copies: [],
    learned: [],
    falseCopies: [],
    takeOvers: [],
    readBacks: 0,
    warmUps: 0,
    sharesHashes: false,
    keepsItsTime: false,
    aheadMs: 0,
    brokersOffMs: 0,
    elections: 0,
    rebalances: 0,
    healedMs: undefined,
    missing: [],
  };
}
