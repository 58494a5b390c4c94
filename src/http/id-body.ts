import { Readable } from 'node:stream';
import { decompose, formatHex, type Layout, tickStartMs } from '../core/layout.ts';
import type { IdBatch } from './allocation-queue.ts';
import type { LoopShare } from './loop-share.ts';

/** Up to so many IDs, about 15 kB, are one text; more are sent piece by piece. */
const WHOLE_IDS = 100;
/** IDs of a piece: about 64 kB and half a millisecond. */
const PIECE_IDS = 400;

/** The body of an answer with the first ID of a batch. Throws RangeError for a batch without any. */
export function idBody(layout: Layout, { ranges: [range] }: IdBatch): string {
  if (range === undefined) throw new RangeError('a batch has at least one ID');
  const number = layout.fitsNumber ? { id_number: Number(range.first) } : {};
  return JSON.stringify({ id: String(range.first), ...number });
}

/**
 * The body of an answer with all IDs of a batch. A large one is a stream that makes a piece when its reader has taken the
 * one before, and when the loop has time for it: a slow reader costs a piece of memory, a fast one leaves others their
 * turn.
 */
export function idsBody(layout: Layout, batch: IdBatch, share: LoopShare): string | Readable {
  const count = batch.ranges.reduce((sum, range) => sum + range.count, 0);
  const pieces = idsPieces(layout, batch);
  if (count <= WHOLE_IDS) return [...pieces].join('');
  return new Readable({
    read() {
      share.run(() => {
        if (this.destroyed) return;
        const { value, done } = pieces.next();
        this.push(done ? null : Buffer.from(value, 'latin1'));
      });
    },
  });
}

/** The text of the body: plain ASCII, in pieces. Equal to JSON.stringify of the views of all IDs, at a third of its cost. */
function* idsPieces(layout: Layout, batch: IdBatch): Generator<string, undefined> {
  let text = '{"ids":[';
  let inPiece = 0;
  let separator = '';
  for (const { first, count } of batch.ranges) {
    const { ticks, datacenter, worker, sequence } = decompose(layout, first);
    const parts = `"timestamp_ms":${tickStartMs(layout, ticks)},"datacenter_id":${datacenter},"worker_id":${worker}`;
    for (let k = 0; k < count; k += 1) {
      const id = first + BigInt(k) * layout.step;
      const number = layout.fitsNumber ? `,"value_number":${id}` : '';
      const names = `"value_string":"${id}"${number},"value_hex":"${formatHex(id)}"`;
      text += `${separator}{${names},"breakdown":{${parts},"sequence_number":${sequence + k}}}`;
      separator = ',';
      inPiece += 1;
      if (inPiece === PIECE_IDS) {
        yield text;
        text = '';
        inPiece = 0;
      }
    }
  }
  yield `${text}],"generated_at":"${new Date(batch.generatedAt).toISOString()}"}`;
}
