import { Readable } from 'node:stream';
import { decompose, formatHex, type Layout, tickStartMs } from '../core/layout.ts';
import type { Allocated } from './issuer.ts';
import type { LoopShare } from './loop-share.ts';
import type { RequestedForm } from './parameters.ts';

/** Up to this many IDs, about 15 kB, are one string; more are streamed in pieces. */
const WHOLE_IDS = 100;
/** IDs per piece: about 64 kB and half a millisecond. */
const PIECE_IDS = 400;
/** IDs per piece of the same duration with a form, and with a keyed form. */
const FORM_PIECE_IDS = 100;
const KEYED_PIECE_IDS = 10;
/** After the last field of an ID. */
const ENDING = '}}';

/** The first ID of a batch. Throws RangeError for a batch without any. */
export function firstIdOf({ ranges: [range] }: Allocated): bigint {
  if (range === undefined) throw new RangeError('a batch has at least one ID');
  return range.first;
}

/** The last ID of a batch. Throws RangeError for a batch without any. */
export function lastIdOf({ ranges }: Allocated, { step }: Layout): bigint {
  const range = ranges.at(-1);
  if (range === undefined) throw new RangeError('a batch has at least one ID');
  return range.first + BigInt(range.count - 1) * step;
}

/** The response body for the first ID of a batch; `form` is that ID in a form. Throws RangeError for an empty batch. */
export function idBody(layout: Layout, batch: Allocated, form?: string): string {
  const id = firstIdOf(batch);
  const number = layout.fitsNumber ? `,"id_number":${id}` : '';
  const written = form === undefined ? '' : `,"value_form":${JSON.stringify(form)}`;
  return `{"id":"${id}"${number}${written}}`;
}

/**
 * The response body for the ranges of a batch: the k-th ID of a range, from 0, is first + k × step. It has at most one
 * range for each tick of the IDs.
 */
export function rangesBody({ step, fitsNumber }: Layout, { ranges, generatedAt }: Allocated): string {
  return JSON.stringify({
    ranges: ranges.map(({ first, count }) => ({
      first: String(first),
      ...(fitsNumber ? { first_number: Number(first) } : {}),
      count,
    })),
    step: String(step),
    generated_at: new Date(generatedAt).toISOString(),
  });
}

/**
 * The response body for all IDs of a batch, each also in `form`, which must be able to hold them. A large body is
 * streamed with backpressure: a slow reader costs one piece of memory, and a fast one leaves time on the event loop for
 * others.
 */
export function idsBody(
  layout: Layout,
  batch: Allocated,
  share: Pick<LoopShare, 'run'>,
  form?: RequestedForm,
): string | Readable {
  const count = batch.ranges.reduce((sum, range) => sum + range.count, 0);
  const pieces = idsPieces(layout, batch, form);
  if (count <= Math.min(WHOLE_IDS, pieceIds(form))) return [...pieces].join('');
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

function pieceIds(form: RequestedForm | undefined): number {
  if (form === undefined) return PIECE_IDS;
  return form.keyed ? KEYED_PIECE_IDS : FORM_PIECE_IDS;
}

/**
 * The body in pieces of ASCII. The same text as JSON.stringify of all views, at a fraction of its cost: what does not
 * change from one ID to the next is one string, since each concatenation is paid again when the text is sent.
 */
function* idsPieces(layout: Layout, batch: Allocated, form: RequestedForm | undefined): Generator<string, undefined> {
  const most = pieceIds(form);
  let text = '{"ids":[';
  let inPiece = 0;
  let separator = '';
  for (const { first, count } of batch.ranges) {
    const { ticks, datacenter, worker, sequence } = decompose(layout, first);
    const timestamp = `"timestamp_ms":${tickStartMs(layout, ticks)}`;
    const identity = `"datacenter_id":${datacenter},"worker_id":${worker}`;
    // Joined rather than added, as in RisingId.
    const breakdown = ['","breakdown":{', timestamp, ',', identity, ',"sequence_number":'].join('');
    const string = new RisingId('{"value_string":"', 'decimal', first, layout.step);
    const number = layout.fitsNumber ? new RisingId('","value_number":', 'decimal', first, layout.step) : undefined;
    const hex = new RisingId(number === undefined ? '","value_hex":"' : ',"value_hex":"', 'hex', first, layout.step);
    for (let k = 0; k < count; k += 1) {
      let view = separator + string.next();
      if (number !== undefined) view += number.next();
      view += hex.next();
      if (form !== undefined) view += `","value_form":"${form.format(first + BigInt(k) * layout.step)}`;
      text += view + breakdown + (sequence + k) + ENDING;
      separator = ',';
      inPiece += 1;
      if (inPiece === most) {
        yield text;
        text = '';
        inPiece = 0;
      }
    }
  }
  yield `${text}],"generated_at":"${new Date(batch.generatedAt).toISOString()}"}`;
}

const LAST = 3;
const textsOf = (base: number) =>
  Array.from({ length: base ** LAST }, (_, number) => number.toString(base).padStart(LAST, '0'));

/** `last`: the texts of the last three digits. */
const NOTATIONS = {
  decimal: { last: textsOf(10), write: String },
  hex: { last: textsOf(16), write: formatHex },
};

/**
 * A text that ends in an ID which rises. Writing a BigInt is slow, so it is done only when more than its last three
 * digits change.
 */
export class RisingId {
  readonly #before: string;
  readonly #notation: (typeof NOTATIONS)['decimal' | 'hex'];
  readonly #step: number;
  #upper: bigint;
  #last: number;
  #unchanged: string;

  /** `step`: below 2^52. */
  constructor(before: string, notation: keyof typeof NOTATIONS, first: bigint, step: bigint) {
    this.#before = before;
    this.#notation = NOTATIONS[notation];
    this.#step = Number(step);
    const size = BigInt(this.#notation.last.length);
    this.#upper = first / size;
    this.#last = Number(first % size);
    this.#unchanged = this.#write();
  }

  /** The text with the ID, which rises by a step for the next time. */
  next(): string {
    const { last, write } = this.#notation;
    if (this.#last >= last.length) {
      this.#upper += BigInt(Math.floor(this.#last / last.length));
      this.#last %= last.length;
      this.#unchanged = this.#write();
    }
    const text = this.#upper === 0n ? this.#before + write(BigInt(this.#last)) : this.#unchanged + last[this.#last];
    this.#last += this.#step;
    return text;
  }

  #write(): string {
    const { last, write } = this.#notation;
    // Joined, since V8 keeps a sum of strings as a tree, which would be walked again for each ID.
    return [this.#before, write(this.#upper * BigInt(last.length)).slice(0, -LAST)].join('');
  }
}
