import { expect } from 'vitest';
import type { Realm } from './realm.ts';
import { runIdalloc } from './worker-process.ts';

/** Takes numbers of a sequence, and returns them as its format writes them; rejects with the code of an error. */
export type Take = (sequence: string, correlationId: string, count: number) => Promise<readonly string[]>;

/**
 * Expects that an example numbers invoices: without a gap, in the format of the sequence, and the same ones for a
 * retry.
 */
export async function expectInvoices(realm: Realm, take: Take): Promise<void> {
  await expect(take('invoices/2027', 'order-1', 2)).rejects.toThrow(/UNKNOWN_SEQUENCE: /);
  const create = ['sequence', 'create', 'invoices/2027', '--format', 'INV-{number:6}'];
  expect(await runIdalloc(create, realm.env)).toMatchObject({ code: 0 });
  const first = await take('invoices/2027', 'order-1', 2);
  expect(first).toEqual(['INV-000001', 'INV-000002']);
  expect(await take('invoices/2027', 'order-2', 1)).toEqual(['INV-000003']);
  expect(await take('invoices/2027', 'order-1', 2)).toEqual(first);
}
