import { decodePending } from '../../src/codec/head-values.ts';
import { readLedgerKey } from '../../src/codec/ledger-key.ts';
import { ledgerHeadKeys } from '../../src/identity/bindings.ts';
import type { KeyValue } from '../../src/identity/identity-ports.ts';
import type { HeadSeen } from './history.ts';
import { FIRST, pairOf } from './pairs.ts';
import { DATACENTER, PREFIX } from './setting.ts';

const KEY = new RegExp(`^${PREFIX}/ledger/${DATACENTER}/([^/]+)/([0-9]+)/(end|pending)$`);
const [ROOT = ''] = ledgerHeadKeys(PREFIX, DATACENTER, FIRST.ledger, 0).end.split(FIRST.ledger);

/** Whether a key of etcd remembers how far a ledger had gone. */
export const isOfLedger = (key: string): boolean => key.startsWith(ROOT);

/** What a write under such a key says; nothing for a head of a sequence, which is written with its `pending`. */
export function headOf(order: number, { key, value }: Pick<KeyValue, 'key' | 'value'>): readonly HeadSeen[] {
  const [, ledger = '', number, what] = KEY.exec(key) ?? [];
  const pair = pairOf('ledger', ledger);
  if (pair === undefined) return [];
  const partition = pair.first + Number(number);
  if (what === 'end') {
    const { end, through } = JSON.parse(String(value)) as { readonly end: number; readonly through: number };
    return [{ order, partition, what, end, through }];
  }
  const records = decodePending(value, key).records.map((record) => {
    if (record.kind === 'order') return { sequence: record.sequence, correlationId: undefined, first: record.first };
    const read = readLedgerKey(record.key);
    const correlationId = read.kind === 'numbers' ? read.requestId.toString('latin1') : undefined;
    return { sequence: record.sequence, correlationId, first: record.entry.first };
  });
  return [{ order, partition, what: 'pending', records }];
}
