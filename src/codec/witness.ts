import type { LayoutReference } from '../core/layout-choice.ts';
import { type Ticks, ticks } from '../core/units.ts';

/**
 * One term's last word about its ceiling, kept outside of etcd: a record of the witness topic.
 *
 *   key   = dc "/" uuid "/" worker "/" fence ["/" lease]      value = "1 " ticks " " revision
 *                                                             header layout = "1 " fingerprint " " epoch
 *   key   = dc                                                value = "1 " uuid
 *
 * The second kind is the seal: it names the one namespace whose witnesses count, and is written when a namespace is
 * rebuilt. The leading 1 is the format's version. All numbers are decimal without a leading zero. The namespace's UUID
 * is part of the key, since after a rebuild etcd may restart its revisions, and so the fences. So is the lease, which
 * is random for each claim: an etcd that was rolled back to just before a claim gives the same fence to the next claim.
 *
 * Compaction keeps the last record of a key, even where its ceiling is not the highest. So the writes of one key must
 * land in the order in which they were sent. One without a response may land at any time, so the next has another key.
 *
 * The layout is in a header since every release reads the record without it, and compaction keeps it with the record.
 */
export interface Witness {
  /** The UUID in the namespace's descriptor. */
  readonly uuid: string;
  readonly workerId: number;
  /** The term's fence; 0 if written by a rebuild. */
  readonly fence: bigint;
  /**
   * The owner's lease, plus one for each earlier write of the term that had no response; 0 if written by a rebuild, or
   * by an earlier release without a lease.
   */
  readonly leaseId: bigint;
  /** The ceiling, in whole ticks since the layout's epoch. */
  readonly ticks: Ticks;
  /** The ceiling's mod revision. */
  readonly modRevision: bigint;
  /** The layout whose ticks these are; undefined if an earlier release wrote the record. */
  readonly layout?: LayoutReference | undefined;
}

/** The headers of a record, as they were read. */
export type WitnessHeaders = Readonly<Record<string, unknown>>;

/** The witnesses of one datacenter, read up to some moment. */
export interface WitnessView {
  /** The UUID of the namespace whose witnesses count; undefined if no namespace was ever rebuilt. */
  readonly seal: string | undefined;
  readonly witnesses: readonly Witness[];
  /** Records in a format that this release does not know. */
  readonly unreadable: readonly UnreadableWitness[];
}

export interface UnreadableWitness {
  readonly key: string;
  /** The start of the value. */
  readonly value: string;
}

const NUMBER = '(0|[1-9][0-9]{0,18})';
const UUID = '([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})';
const KEY = new RegExp(`^[0-9]+/${UUID}/(0|[1-9][0-9]{0,9})/${NUMBER}(?:/([1-9][0-9]{0,18}))?$`);
const VALUE = new RegExp(`^1 (0|[1-9][0-9]{0,15}) ${NUMBER}$`);
const SEAL = new RegExp(`^1 ${UUID}$`);
const LAYOUT = /^1 ([0-9a-f]{16}) (0|[1-9][0-9]{0,15})$/;
const MAX_INT64 = 2n ** 63n - 1n;
/** The most bytes shown of an unreadable value. */
const MAX_SHOWN_BYTES = 120;

/** The record key of a witness. RangeError for one that could not be read back. */
export function witnessKey(datacenterId: number, { uuid, workerId, fence, leaseId }: WitnessName): Buffer {
  const term = leaseId === 0n ? `${fence}` : `${fence}/${leaseId}`;
  const key = `${datacenterId}/${uuid}/${workerId}/${term}`;
  if (!KEY.test(key) || fence > MAX_INT64 || leaseId > MAX_INT64)
    throw new RangeError(`${JSON.stringify(key)} is not the key of a witness`);
  return Buffer.from(key, 'latin1');
}

/** Identifies the record of a witness. */
export type WitnessName = Pick<Witness, 'uuid' | 'workerId' | 'fence' | 'leaseId'>;

/** The record value of a witness. RangeError for one that could not be read back. */
export function witnessValue({ ticks: ceiling, modRevision }: Pick<Witness, 'ticks' | 'modRevision'>): Buffer {
  const value = `1 ${ceiling} ${modRevision}`;
  if (!VALUE.test(value) || !Number.isSafeInteger(ceiling) || modRevision > MAX_INT64) {
    throw new RangeError(`${JSON.stringify(value)} is not the value of a witness`);
  }
  return Buffer.from(value, 'latin1');
}

/** The record's headers. RangeError for a layout that could not be read back. */
export function witnessHeaders({ layout }: Pick<Witness, 'layout'>): Readonly<Record<string, string>> {
  if (layout === undefined) return {};
  const text = `1 ${layout.layoutFingerprint} ${layout.epochMs}`;
  if (!LAYOUT.test(text)) throw new RangeError(`${JSON.stringify(text)} is not the layout of a witness`);
  return { layout: text };
}

/** The record key of a datacenter's seal. */
export function sealKey(datacenterId: number): Buffer {
  return Buffer.from(String(datacenterId), 'latin1');
}

/** The record value of a seal. RangeError for a text that is not a UUID. */
export function sealValue(uuid: string): Buffer {
  const value = `1 ${uuid}`;
  if (!SEAL.test(value)) throw new RangeError(`${JSON.stringify(uuid)} is not the UUID of a namespace`);
  return Buffer.from(value, 'latin1');
}

/**
 * The records of one datacenter, folded: a record without a value takes its key away, and of a term's witnesses the
 * highest counts, since ceilings only rise: a lower one is a late copy of an earlier write.
 */
export class WitnessTable {
  readonly #datacenter: string;
  readonly #witnesses = new Map<string, Witness>();
  readonly #unreadable = new Map<string, UnreadableWitness>();
  #seal: string | undefined;

  constructor(datacenterId: number) {
    this.#datacenter = String(datacenterId);
  }

  /** Applies the next record of the log; ignores those of other datacenters. Never throws. */
  apply(key: Buffer | null, value: Buffer | null, headers: WitnessHeaders): void {
    const name = key?.toString('latin1') ?? '';
    if (name !== this.#datacenter && !name.startsWith(`${this.#datacenter}/`)) return;
    this.#unreadable.delete(name);
    if (value === null) this.#witnesses.delete(name);
    if (value === null && name === this.#datacenter) this.#seal = undefined;
    if (value !== null && !this.#read(name, value.toString('latin1'), headers)) {
      this.#unreadable.set(name, { key: name, value: value.toString('latin1', 0, MAX_SHOWN_BYTES) });
    }
  }

  /** False for an unknown format. */
  #read(name: string, value: string, headers: WitnessHeaders): boolean {
    if (name === this.#datacenter) {
      this.#seal = SEAL.exec(value)?.[1];
      return this.#seal !== undefined;
    }
    const witness = readWitness(name, value, headers);
    if (witness === undefined) return false;
    const known = this.#witnesses.get(name);
    if (known === undefined || known.ticks <= witness.ticks) this.#witnesses.set(name, witness);
    return true;
  }

  view(): WitnessView {
    return { seal: this.#seal, witnesses: [...this.#witnesses.values()], unreadable: [...this.#unreadable.values()] };
  }
}

/** The witness in a record, with its layout; undefined for a seal, and for a format that this release does not know. */
export function readWitness(key: string, value: string, headers: WitnessHeaders): Witness | undefined {
  const [witness, layout] = [parse(key, value), layoutIn(headers)];
  return witness === undefined || layout === 'unreadable' ? undefined : { ...witness, layout };
}

/** What the key of a witness names, whether its record has a value or not; undefined for any other key. */
export function readWitnessKey(key: string): { datacenterId: number; workerId: number; fence: bigint } | undefined {
  const [, , workerId, fence] = KEY.exec(key) ?? [];
  if (workerId === undefined || fence === undefined) return undefined;
  return { datacenterId: Number(key.slice(0, key.indexOf('/'))), workerId: Number(workerId), fence: BigInt(fence) };
}

function layoutIn({ layout }: WitnessHeaders): LayoutReference | 'unreadable' | undefined {
  if (layout === undefined) return undefined;
  const [, layoutFingerprint, epoch] = (Buffer.isBuffer(layout) && LAYOUT.exec(layout.toString('latin1'))) || [];
  if (layoutFingerprint === undefined || !Number.isSafeInteger(Number(epoch))) return 'unreadable';
  return { layoutFingerprint, epochMs: Number(epoch) };
}

function parse(key: string, value: string): Witness | undefined {
  const [, uuid, workerId, ofFence, ofLease] = KEY.exec(key) ?? [];
  const [, ceiling, revision] = VALUE.exec(value) ?? [];
  if (uuid === undefined || revision === undefined || !Number.isSafeInteger(Number(ceiling))) return undefined;
  const [fence = 0n, leaseId = 0n, modRevision = 0n] = [ofFence ?? 0, ofLease ?? 0, revision].map(BigInt);
  if ([fence, leaseId, modRevision].some((one) => one > MAX_INT64)) return undefined;
  return { uuid, workerId: Number(workerId), fence, leaseId, ticks: ticks(Number(ceiling)), modRevision };
}
