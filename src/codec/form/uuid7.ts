import { timedForm } from './timed.ts';
import { readUuid, UUID_BITS, uuidShape, writeUuid } from './uuid.ts';

const TIME_BITS = 48;

/** UUID version 7 (RFC 9562, 5.7): its ms are the start of the ID's tick. */
export const uuid7 = timedForm({
  name: 'uuid7',
  sorts: 'text',
  shape: uuidShape(7),
  epochMs: 0,
  unitMs: 1,
  timeBits: TIME_BITS,
  restBits: UUID_BITS - TIME_BITS,
  write: (value) => writeUuid(7, value),
  read: (text) => readUuid('uuid7', 7, text),
});
