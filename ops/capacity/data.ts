import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../dev/paths.ts';

/** A run of `npm run bench:report`, from which plots and tables of docs/operations/capacity.md are made. */
export interface CapacityData {
  /** YYYY-MM-DD. */
  readonly date: string;
  readonly version: string;
  readonly machine: Machine;
  /** Parts while others took more than MOST_OTHERS_PERCENT of the machine; undefined if that was not watched. */
  readonly disturbed?: readonly Disturbed[];
  /** By IDs in a request; the first is 1. */
  readonly counts: readonly Served[];
  /** The ways of a request of one ID; the first is the usual one. */
  readonly ways: readonly (Served & { readonly way: string })[];
  readonly latency: {
    /** The highest rate, requests/s. */
    readonly maximum: number;
    /** Of which the medians count; undefined: each point is one measurement of ten seconds. */
    readonly rounds?: number;
    readonly points: readonly LatencyPoint[];
  };
  /** What a request of one ID costs a worker with 12 partitions that has run for a minute, by rising rates. */
  readonly rates: readonly RateCost[];
  /** One worker over so many partitions; the first is 1. */
  readonly partitions: readonly (Served & { readonly partitions: number })[];
  /** So many workers over 12 partitions. */
  readonly workers: readonly (Served & { readonly workers: number })[];
  readonly index: readonly IndexSize[];
  readonly forms: readonly Form[];
  readonly doors: readonly Door[];
  /** What servers that can be asked for a count returned before and after `kill -9`. */
  readonly crashes: readonly Crash[];
  /** IDs from memory, in one process. */
  readonly inProcess: readonly { readonly name: string; readonly nsPerId: number }[];
}

/** The most that others may take of the machine before figures are marked: programs that the run did not start. */
export const MOST_OTHERS_PERCENT = 5;

export interface Disturbed {
  readonly part: string;
  /** Of all processors. */
  readonly othersPercent: number;
}

interface Machine {
  readonly processor: string;
  readonly cores: number;
  readonly memoryGib: number;
  readonly node: string;
  readonly servers: readonly string[];
}

/** Requests that were served as fast as possible. */
export interface Served {
  /** IDs in each request. */
  readonly count: number;
  readonly requestsPerS: number;
  /** Of all rounds, of which requestsPerS is the median; undefined if the run did not keep it. */
  readonly range?: { readonly least: number; readonly most: number };
  /** Processor time of the workers for a request, in µs. */
  readonly workerUs: number;
  /** Processor time of the broker for a request, with one replica of each topic, in µs. */
  readonly brokerUs: number;
  /** Bytes of a request in the topics, in one replica. */
  readonly bytes: { readonly requests: number; readonly ledger: number; readonly replies: number };
  /** Memory of a worker at the end, in MiB. */
  readonly memoryMib: number;
}

/** Where so many requests a second come evenly. */
export type RateCost = Pick<Served, 'requestsPerS' | 'workerUs' | 'brokerUs'>;

export interface LatencyPoint {
  /** Of the maximum. */
  readonly share: number;
  readonly requestsPerS: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

export interface IndexSize {
  readonly entries: number;
  readonly diskBytesPerEntry: number;
  readonly memoryBytesPerEntry: number;
  readonly restorePerS: number;
}

export interface Form {
  readonly form: string;
  readonly formatNs: number;
  readonly parseNs: number;
}

/** What a user may call for unique numbers. */
export interface Door {
  readonly name: string;
  /** IDs in each request. */
  readonly count: number;
  readonly requestsPerS: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/**
 * The last ID before a server was killed, and the first after it started again; one more than the last if nothing is
 * lost.
 */
export interface Crash {
  /** The name of the door. */
  readonly name: string;
  readonly last: number;
  readonly next: number;
}

/** Requests that each door has in flight. */
export const IN_FLIGHT = 64;

/** What a crash of a process or a machine loses or repeats, by the name of the door. */
export const CRASH: Readonly<Record<string, string>> = {
  'idalloc over Kafka': 'loses nothing: a decided batch is found again',
  'idalloc over HTTP': 'loses IDs in lost responses',
  'Redis INCRBY, as installed': '**repeats IDs** since the last snapshot, up to an hour',
  'Redis INCRBY, fsync always': 'loses IDs in lost responses; a fail-over may repeat IDs',
  'PostgreSQL nextval': 'loses up to 32 blocks; an asynchronous fail-over may repeat IDs',
  'UUIDv7, in process': 'loses nothing; unique by chance only',
  'idalloc client, next()': 'loses the buffer',
};

export const DATA_FILE = join(ROOT, 'docs/operations/capacity.json');

/** The run that the page shows. */
export function readData(): CapacityData {
  return JSON.parse(readFileSync(DATA_FILE, 'utf8'));
}
