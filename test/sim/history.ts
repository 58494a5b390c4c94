import type { IdBatch } from '../../src/codec/id-batch.ts';
import type { IdReply } from '../../src/codec/id-reply.ts';
import type { Origin } from '../../src/codec/request-headers.ts';
import type { LedgerNumbers, LedgerStatement } from '../../src/codec/sequence-entry.ts';
import type { IdRange } from '../../src/core/generator.ts';
import type { Layout } from '../../src/core/layout.ts';
import type { FinalTopics } from './final-topics.ts';
import { FINE } from './setting.ts';

/**
 * What happened in a simulation, as plain data, observed from outside the code under test. `order` numbers all events,
 * which shows which of two came first. A record in a topic counts from the time when readers may see it.
 */
export interface History {
  readonly layout: Layout;
  readonly requests: SentRequest[];
  readonly firstSent: Map<string, number>; // by correlation ID
  readonly requestTrims: Trim[];
  readonly issued: Issued[];
  readonly grants: Grant[];
  /** What callers of the HTTP API got. */
  readonly overHttp: OverHttp[];
  readonly ceilings: CeilingChange[];
  readonly entries: Entry[];
  /** Records of numbers, void ones and renewals as well, and statements of sequences. */
  readonly numbers: NumbersEntry[];
  readonly statements: StatementEntry[];
  readonly marks: Mark[];
  readonly appends: Append[];
  readonly trims: Trim[];
  readonly losses: Loss[];
  readonly requestLosses: RequestLoss[];
  readonly replacements: Replacement[];
  /** What was written to etcd of how far ledger partitions and their sequences had gone. */
  readonly heads: HeadSeen[];
  /** When an operator adopted the present cluster. */
  readonly adoptions: number[];
  /** From then on, Kafka and etcd may both have lost the same decision; undefined where they never do. */
  losesBoth: number | undefined;
  /** Ends of request partitions, whenever they change. */
  readonly requestEnds: RequestEnd[];
  /** When etcd was rolled back, after which fences may repeat. */
  readonly setBacks: number[];
  /** When a worker reported that etcd was rolled back. */
  readonly alarms: number[];
  readonly rebuilds: Rebuild[];
  /** Changes of the witness topic as compaction may leave it. */
  readonly witnessed: Witnessed[];
  readonly replies: ReplyRecord[];
  readonly letters: Letter[];
  /** Requests that were appended to the partitions of their correlation IDs. */
  readonly forwards: Forward[];
  readonly commits: Commit[];
  readonly answeredStated: AnsweredStated[];
  /** The adoptions among the markers. */
  readonly adoptionMarks: Mark[];
  readonly replays: ReplaySeen[];
  /** When each process started. */
  readonly started: Map<string, number>;
  /**
   * The least that a worker allowed as the count of a request; undefined if that never was less than any request wants.
   */
  lowestCount: number | undefined;
  /** Errors that must never occur here, whatever else fails: bugs. */
  readonly defects: string[];
  /** Processes whose indexes were lost under them. */
  readonly damaged: string[];
  /** Commits of members for partitions of others. */
  readonly foreignCommits: string[];
  /** Times at which a worker reported ready, and was not. */
  readonly falselyReady: string[];
  /** Times at which a worker still owned a partition that it had not reached for long, and another one did. */
  readonly keptUnreached: string[];
  /** Times at which a worker was late to resume after etcd had refused writes, or asked it too often meanwhile. */
  readonly unresumed: string[];
  /** Processes that were cut off from a server, but for the cuts that go with a lost tail of requests. */
  readonly cuts: Cut[];
  /** Times at which a worker reported ready that the namespace must reject. */
  readonly strays: string[];
  /** Events of copies of ledger partitions. */
  readonly copies: CopyEvent[];
  /** Decisions that processes applied to their copies. */
  readonly learned: Learned[];
  /** What processes learned of sequences, from records that count or with a copy that they took over. */
  readonly learnedNumbers: LearnedNumbers[];
  /** Copies of another log that a worker reported to its group. */
  readonly falseCopies: string[];
  /** Saves after which a power failure would have lost more than one round of saves. */
  readonly unsynced: string[];
  /** How often a volume was restored from a backup. */
  volumes: number;
  readonly takeOvers: TakeOver[];
  /** How often entries were read back from the ledger, and members were assigned warm-ups. */
  readBacks: number;
  warmUps: number;
  /** How many batches of requests were dense. */
  denseBatches: number;
  /** Whether indexes identify keys by a short hash that many share. */
  sharesHashes: boolean;
  keepsItsTime: boolean;
  /** The most by which the wall clock of any machine was ahead, and that of any broker wrong. */
  aheadMs: number;
  brokersOffMs: number;
  /** Whether some broker's clock was off beyond any margin for a while. */
  isBrokerFarOff: boolean;
  /** How many clocks of machines drift, and by how much one in use may be wrong then; undefined if clocks step. */
  drifts: number;
  mostOffMs: number | undefined;
  /** How many machines did not come back. */
  gone: number;
  /** How often ledger partitions got another leader, and the request group another generation. */
  elections: number;
  rebalances: number;
  /** Virtual milliseconds from the end of the faults until everything was answered; undefined if it never was. */
  healedMs: number | undefined;
  /** What was still missing at the time limit. */
  missing: readonly string[];
  /** What the topics have at the end. */
  topics: FinalTopics | undefined;
}

/** A process is cut off from etcd, from all brokers or from one of them; in virtual milliseconds. */
interface Cut {
  readonly process: string;
  readonly link: string;
  readonly untilMs: number;
}

/** An event of a process's copy of a ledger partition. */
export interface CopyEvent {
  readonly order: number;
  readonly process: string;
  readonly partition: number;
  /** Opened from disk; emptied, to be restored; restored after either; dropped, since it is no longer needed. */
  readonly what: 'opened' | 'emptied' | 'restored' | 'dropped';
  /** For a copy that was opened or emptied: the lowest end of the log that any broker may report. */
  readonly logEnd: number;
}

/** A process applied an entry to its copy: it now knows that the request was decided, and with which batch. */
export interface Learned {
  readonly order: number;
  readonly process: string;
  readonly partition: number;
  readonly offset: number;
  readonly requestOffset: number;
  readonly correlationId: string;
  /** The first ID of the batch. */
  readonly first: bigint;
}

/**
 * A process applied a record to its copy, or opened the copy of an earlier process: it knows that all numbers below are
 * given out.
 */
export interface LearnedNumbers {
  readonly order: number;
  readonly process: string;
  readonly partition: number;
  /** Where the record was; -1 for what an earlier process knew before its copy was emptied. */
  readonly offset: number;
  readonly sequence: string;
  /** The next number. */
  readonly next: number;
}

/** An owner was killed while a standby had a complete copy of one of its partitions, without any other fault. */
interface TakeOver {
  readonly order: number;
  readonly partition: number;
  readonly killed: string;
  /** When the group last had the killed worker as the owner, in the same order. */
  readonly held: number;
  /** The end of the take-over, in the same order: by then another worker had to serve the partition. */
  readonly until: number;
  /** Number of requests to the partition meanwhile. */
  readonly requests: number;
}

/** A place in a request partition. Offsets are used again after a lost tail. */
export interface RequestPlace {
  readonly partition: number;
  readonly offset: number;
  /** How often the partition had lost its tail before; undefined for never. */
  readonly life?: number | undefined;
}

/** A record of the request topic that readers of committed records see. */
export interface SentRequest extends RequestPlace {
  readonly order: number;
  /** Identifies the record, and all its forwarded copies. */
  readonly tag: string;
  /** The broker's clock when it was appended. */
  readonly timestampMs: number;
  /** What names the request: its correlation ID, or its request ID if each try has another correlation ID. */
  readonly correlationId: string;
  /** The correlation ID of this try, if that does not name the request. */
  readonly triedAs?: string | undefined;
  /** The process that sent the record; empty for clients. */
  readonly sender?: string | undefined;
  /** Set if numbers of a sequence are wanted. */
  readonly sequence?: string | undefined;
  readonly count: number;
  /** Whether it came in a dense batch. */
  readonly isDense?: boolean | undefined;
  readonly replyTopic: string;
  readonly expiresAtMs?: number | undefined;
  /** For a record that a client sent again: the time of the first, as the client says. */
  readonly firstSentMs?: number | undefined;
  /** For a record that was forwarded or sent again: the origin in its headers. */
  readonly origin?: Origin | undefined;
}

/** A range that was allocated, with the state of etcd at that time. */
export interface Issued {
  readonly order: number;
  readonly workerId: number;
  readonly fence: bigint;
  /** The start of the reservation of its term. */
  readonly from: number;
  readonly first: bigint;
  readonly last: bigint;
  readonly tick: number;
  /** The ceiling stored at that time; undefined if there was none. */
  readonly ceiling: number | undefined;
}

/** Authority that the allocator got and used. */
export interface Grant {
  readonly order: number;
  readonly process: string;
  /** The configuration of the process: one of several, of which a namespace accepts one. */
  readonly config: string;
  readonly workerId: number;
  readonly fence: bigint;
  readonly from: number;
  readonly to: number;
  /** Time since the last answered renewal of any lease of this process was sent. */
  readonly sinceRenewalMs: number;
  /** How far the wall clock is below the highest time that this process has seen since its term started. */
  readonly behindMs: number;
  /** Whether the process was frozen after that renewal was sent. */
  readonly wasPaused: boolean;
  /** How far the wall clock is ahead of the true time. */
  readonly offMs: number;
}

/** A response of the HTTP API with IDs. */
interface OverHttp {
  readonly process: string;
  readonly ranges: readonly IdRange[];
  /** Whether the gate was closed when the request came. */
  readonly isClosed: boolean;
}

/** A stored ceiling that replaced another, or was deleted. */
interface CeilingChange {
  readonly workerId: number;
  readonly before: number;
  readonly after: number | undefined;
  /** How far the new ceiling is ahead of the true time. */
  readonly aheadMs: number;
}

/**
 * The place of a ledger record, and its writer's knowledge: the index ended at `end` and knew requests up to `through`.
 */
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
interface Forward extends RequestPlace {
  readonly landed: number;
}

/** A decision in the ledger. */
export interface Entry extends Mark {
  readonly correlationId: string;
  readonly count: number;
  readonly replyTopic: string;
  readonly batch: IdBatch;
  readonly requestOffset: number;
  /** The process that wrote it, and when it was sent. */
  readonly process: string;
  readonly sent: number;
}

/** A record of numbers in the ledger. */
export interface NumbersEntry extends Mark, Pick<LedgerNumbers, 'at' | 'first' | 'count' | 'step'> {
  readonly sequence: string;
  readonly correlationId: string;
  readonly replyTopic: string;
  readonly requestOffset: number;
  /** The process that wrote it, and when it was sent. */
  readonly process: string;
  readonly sent: number;
}

/** A statement of a sequence in the ledger. */
export interface StatementEntry extends Mark, Pick<LedgerStatement, 'at' | 'next' | 'step' | 'max' | 'closed'> {
  readonly sequence: string;
  /** Each order of an operator makes the next; 0 for a statement from before there were editions. */
  readonly edition: number;
  /** The next number as its writer knew it. */
  readonly first?: number | undefined;
  /** Whether it states that the ledger has lost numbers. */
  readonly isLoss: boolean;
}

/** One append of a process, from sending until the process knew the outcome or gave up. */
export interface Append {
  readonly process: string;
  /** When the process started. */
  readonly started: number;
  readonly partition: number;
  readonly sent: number;
  ended: number;
  answered: boolean;
  /** Whether it is a marker, or has decisions. */
  readonly marks: boolean;
  readonly decides: boolean;
  /**
   * For a marker: the requests that it claims to know of, and when its writer last asked for the end of the requests.
   */
  readonly claim?: { readonly through: number; readonly asked: number } | undefined;
}

/** A topic lost its head. */
interface Trim {
  readonly order: number;
  readonly partition: number;
  readonly low: number;
}

/** The ledger lost its tail, acknowledged or not: the guarantee of replay no longer holds after that, all others do. */
export interface Loss {
  readonly order: number;
  readonly partition: number;
  /** The first offset that was lost. */
  readonly from: number;
  /** The end of the log before. */
  readonly end: number;
}

/** A write of a partition's head: its end, or what was swapped in of its sequences. */
export type HeadSeen = { readonly order: number; readonly partition: number } & (
  | { readonly what: 'end'; readonly end: number; readonly through: number }
  | { readonly what: 'pending'; readonly records: readonly PendingSeen[] }
);

/** A pending record: numbers of a request, or an order. */
interface PendingSeen {
  readonly sequence: string;
  /** Undefined for an order. */
  readonly correlationId: string | undefined;
  readonly first: number;
}

/** Another cluster took the place of the one before. */
interface Replacement {
  readonly order: number;
  readonly clusterId: string;
  /** Whether it has a copy of the logs, with the same offsets or with others. */
  readonly copying: 'same' | 'shifted' | 'none';
}

/** The end of a request partition from then on. */
interface RequestEnd {
  readonly order: number;
  readonly partition: number;
  readonly end: number;
}

/** A request partition lost its tail, read or not. */
export interface RequestLoss extends Loss {
  /**
   * From then on the owner reads the log as it is now, and the next owner will; undefined before, and if a late commit
   * undoes it.
   */
  seen: number | undefined;
}

/** The highest ceiling that the last records of all keys of a worker ID show. */
export interface Witnessed {
  readonly order: number;
  readonly workerId: number;
  readonly ticks: number;
}

/** A rebuild of the namespace, and what it had read when it chose its floor. */
interface Rebuild {
  readonly order: number;
  readonly floor: number;
  /** By worker ID and fence: the end of the term's reservation according to its witness. */
  readonly known: ReadonlyMap<string, number>;
  /**
   * Whether a ceiling was stored at the floor. The next rebuild after one that was killed before may choose a lower
   * one.
   */
  isWritten: boolean;
}

/** A reply in a reply topic, to the request at (partition, offset). */
export interface ReplyRecord extends RequestPlace {
  readonly process: string;
  readonly sent: number;
  /** When the process sent it first: an append that is not answered is sent again, maybe long after. */
  readonly firstSent: number;
  readonly landed: number;
  /** The true time when it landed. */
  readonly atMs: number;
  readonly topic: string;
  readonly key: string;
  /** In its header. */
  readonly requestId?: string | undefined;
  readonly value: Buffer;
  /** The decoded value. */
  readonly reply: IdReply;
}

/** A dead letter, for the request at (partition, offset). */
export interface Letter extends RequestPlace {
  readonly sent: number;
  readonly landed: number;
  readonly code: string;
  /** Whether it is one of several requests of the letter. */
  readonly isRange: boolean;
}

/** An accepted commit: everything below the offset is done. */
interface Commit {
  readonly sent: number;
  readonly accepted: number;
  readonly partition: number;
  readonly offset: number;
}

/**
 * A statement of a replay in the ledger: all requests of the partition below were answered; 0: what was refused is
 * decided after all.
 */
export interface AnsweredStated extends Pick<Mark, 'order' | 'partition' | 'offset'> {
  readonly below: number;
  readonly process: string;
}

/** An operator moved the committed offset of a partition. */
interface ReplaySeen {
  readonly process: string;
  readonly accepted: number;
  readonly partition: number;
  readonly to: number;
}

/** The history before anything has happened. */
export function emptyHistory(layout: Layout = FINE): History {
  return {
    layout,
    requests: [],
    firstSent: new Map(),
    requestTrims: [],
    issued: [],
    grants: [],
    overHttp: [],
    ceilings: [],
    entries: [],
    numbers: [],
    statements: [],
    marks: [],
    appends: [],
    trims: [],
    losses: [],
    requestLosses: [],
    replacements: [],
    heads: [],
    adoptions: [],
    losesBoth: undefined,
    requestEnds: [],
    setBacks: [],
    alarms: [],
    rebuilds: [],
    witnessed: [],
    replies: [],
    letters: [],
    forwards: [],
    commits: [],
    answeredStated: [],
    adoptionMarks: [],
    replays: [],
    started: new Map(),
    lowestCount: undefined,
    defects: [],
    damaged: [],
    foreignCommits: [],
    falselyReady: [],
    keptUnreached: [],
    unresumed: [],
    cuts: [],
    strays: [],
    copies: [],
    learned: [],
    learnedNumbers: [],
    falseCopies: [],
    unsynced: [],
    volumes: 0,
    takeOvers: [],
    readBacks: 0,
    warmUps: 0,
    denseBatches: 0,
    sharesHashes: false,
    keepsItsTime: false,
    aheadMs: 0,
    brokersOffMs: 0,
    isBrokerFarOff: false,
    drifts: 0,
    gone: 0,
    mostOffMs: undefined,
    elections: 0,
    rebalances: 0,
    healedMs: undefined,
    missing: [],
    topics: undefined,
  };
}
