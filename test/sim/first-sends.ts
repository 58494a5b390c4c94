import { type PlainRecord, recordsOf } from '../support/fake-kafka/batches.ts';
import { TAG } from './setting.ts';

/** When processes sent replies first: an append that is not answered is sent again, maybe long after. */
export class FirstSends {
  readonly #sent = new Map<string, number>();

  /** A process sends these replies at a time in the history's order. */
  add(process: string, batch: Buffer, sent: number): void {
    for (const record of recordsOf(batch)) {
      const name = nameOf(process, record);
      if (!this.#sent.has(name)) this.#sent.set(name, sent);
    }
  }

  of(process: string, record: PlainRecord): number | undefined {
    return this.#sent.get(nameOf(process, record));
  }
}

function nameOf(process: string, { value, headers }: PlainRecord): string {
  return `${process} ${headers?.[TAG]} ${value?.toString('latin1')}`;
}
