import { describeError, IdallocError } from '../errors.ts';
import { parseExactObject, requireInteger, requireText } from './strict-json.ts';

/**
 * How far a partition of the ledger had gone, as etcd remembers it. Stored as JSON, one field for each of these:
 *
 *   {"end":42,"digest":"<32 hexadecimal digits>","through":17,"time":1700000000000,"life":0}
 */
export interface EndHead {
  /** The offset after the last entry that a worker had read back, at least 1. */
  readonly end: number;
  /** The digest of that entry, as digestEntry returns it. */
  readonly digest: Buffer;
  /** The highest request offset that was decided; -1 for none. */
  readonly through: number;
  /** When that entry was appended, by the broker's clock, in milliseconds. */
  readonly time: number;
  /** How many losses of the partition were stated: within one life its end only rises. */
  readonly life: number;
}

const FIELDS = ['end', 'digest', 'through', 'time', 'life'];
const DIGEST = /^[0-9a-f]{32}$/;

export function encodeEndHead({ end, digest, through, time, life }: EndHead): Buffer {
  return Buffer.from(JSON.stringify({ end, digest: digest.toString('hex'), through, time, life }));
}

export function isSameHead(one: EndHead, other: EndHead): boolean {
  return encodeEndHead(one).equals(encodeEndHead(other));
}

/** Decodes the value of a key. Throws NAMESPACE_DAMAGED if it is malformed: that must never count as "none yet". */
export function decodeEndHead(key: string, value: Buffer): EndHead {
  try {
    const object = parseExactObject(value, FIELDS);
    return {
      end: requireInteger(object, 'end', 1),
      digest: Buffer.from(requireText(object, 'digest', DIGEST), 'hex'),
      through: requireInteger(object, 'through', -1),
      time: requireInteger(object, 'time', 0),
      life: requireInteger(object, 'life', 0),
    };
  } catch (error) {
    throw new IdallocError(
      'NAMESPACE_DAMAGED',
      `${key} does not say how far a ledger partition had gone (${describeError(error)}): another program wrote it; ` +
        "'idalloc namespace adopt-cluster' writes it again from what the ledger has",
      { cause: error },
    );
  }
}
