import { encodeSequenceHead, type SequenceHead } from '../../src/codec/head-values.ts';
import { decodeLedgerEntry } from '../../src/codec/ledger-entry.ts';
import { EtcdHeads } from '../../src/ledger/heads.ts';
import { FakeEtcd, type Fault } from '../identity/fake-etcd.ts';
import { MemoryLedger } from './memory-ledger.ts';
import { request, statement } from './memory-records.ts';
import { gist, headKeysOf, MemoryWorker, type MemoryWorkerOptions } from './memory-worker.ts';

export const NOW_MS = 1_700_000_000_000;

/** Faults for the next swaps; later ones pass, and so does everything else. */
export function swapsOf(...faults: Fault[]): NonNullable<MemoryWorkerOptions['etcdLink']> {
  return async (name) => ({ fault: name === 'transact' ? (faults.shift() ?? 'pass') : 'pass' });
}

/** A ledger and an etcd that have the sequence `invoices`, from 1, and workers over both. */
export function numbersWorld(fields: Parameters<typeof statement>[1] = {}) {
  const topic = new MemoryLedger(1, () => NOW_MS);
  const etcd = new FakeEtcd(() => 0);
  topic.land(0, [statement(0, fields)]);
  const definition = { next: 1, step: 1, max: 1_000, format: '', closed: false, edition: 1 };
  const setHead = (head: Partial<SequenceHead>) =>
    etcd.tamper(headKeysOf(0).sequence('invoices'), encodeSequenceHead({ ...definition, ...head }));
  if (fields.edition !== 0) setHead(fields);
  let workers = 0;
  const worker = (options: Partial<MemoryWorkerOptions> = {}) =>
    new MemoryWorker({ topic, etcd, workerId: workers++, ...options });
  const heads = new EtcdHeads({ etcd: etcd.port(), keysOf: headKeysOf });
  const headNow = () => heads.read(0, ['invoices']);
  const nextInEtcd = async () => (await headNow()).sequences.get('invoices')?.next;
  return { topic, etcd, worker, heads, headNow, nextInEtcd };
}

/** The ledger loses everything from this offset on, and the workers notice. */
export function lose(topic: MemoryLedger, high: number, ...workers: MemoryWorker[]): void {
  topic.truncate(0, high);
  for (const worker of workers) {
    worker.copy.invalidate('the log is shorter');
    worker.catchUp();
  }
}

export const wanted = (offset: number, id: string, count = 1, sequence = 'invoices') =>
  request(offset, id, { sequence, count });
export const gists = (worker: MemoryWorker) => worker.replies().map(gist);
export const swaps = ({ events }: MemoryWorker) => events.filter((event) => event.startsWith('swap '));
export const appends = ({ events }: MemoryWorker) => events.filter((event) => /^append \d/.test(event));

/** What the ledger holds of sequences: the first number of numbers, or the kind and the next number of a statement. */
export const shown = (topic: MemoryLedger) =>
  topic.read(0, topic.bounds(0).low).flatMap(({ offset, value, headers }) => {
    const one = decodeLedgerEntry(value as Buffer, headers);
    if (one.kind === 'numbers') return `${one.first}${one.at === offset ? '' : ' void'}`;
    if (one.kind !== 'statement') return [];
    return `${one.isLoss ? 'loss' : `edition ${one.edition}`} at ${one.next}`;
  });
