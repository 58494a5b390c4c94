/**
 * Avro single-object framing: two marker bytes, the schema's CRC-64-AVRO fingerprint (little endian), the body.
 *
 *   C3 01 | fingerprint (8) | body
 *
 * Confluent framing names the schema by its id in a registry: 00 | id (4, big endian) | body.
 */
export type Framing = 'SINGLE_OBJECT' | 'CONFLUENT';

export const FINGERPRINT_BYTES = 8;
export const HEADER_BYTES = 2 + FINGERPRINT_BYTES;
const MARKER = [0xc3, 0x01] as const;

/** The CRC's polynomial; in the Avro specification also the fingerprint of empty input. */
const EMPTY = 0xc15d213aa4d7a795n;

const CRC_TABLE: readonly bigint[] = Array.from({ length: 256 }, (_, index) => {
  let crc = BigInt(index);
  for (let bit = 0; bit < 8; bit++) crc = (crc & 1n) === 1n ? (crc >> 1n) ^ EMPTY : crc >> 1n;
  return crc;
});

/** CRC-64-AVRO as an unsigned number (Avro specification, "Schema Fingerprints"). Slow, only used at start-up. */
export function crc64Avro(bytes: Uint8Array): bigint {
  let crc = EMPTY;
  for (const byte of bytes) crc = (crc >> 8n) ^ (CRC_TABLE[Number((crc ^ BigInt(byte)) & 0xffn)] ?? 0n);
  return crc;
}

/** The eight bytes that identify a schema in a frame, from its Parsing Canonical Form. */
export function fingerprint(canonicalForm: string): Buffer {
  const bytes = Buffer.alloc(FINGERPRINT_BYTES);
  bytes.writeBigUInt64LE(crc64Avro(Buffer.from(canonicalForm, 'utf8')));
  return bytes;
}

/** The ten bytes before every body of a schema. */
export function singleObjectHeader(schemaFingerprint: Buffer): Buffer {
  if (schemaFingerprint.length !== FINGERPRINT_BYTES) throw new RangeError('a fingerprint has 8 bytes');
  return Buffer.from([...MARKER, ...schemaFingerprint]);
}

/** A framed copy of the body. */
export function frame(header: Buffer, body: Uint8Array): Buffer {
  return Buffer.concat([header, body]);
}

/** Whether bytes are framed with exactly this header. */
export function isFramed(header: Buffer, bytes: Buffer): boolean {
  if (bytes.length < HEADER_BYTES) return false;
  for (let i = 0; i < HEADER_BYTES; i++) if (bytes[i] !== header[i]) return false;
  return true;
}

/** The body (a view, not a copy) of bytes framed with exactly this header, else undefined. */
export function unframe(header: Buffer, bytes: Buffer): Buffer | undefined {
  return isFramed(header, bytes) ? bytes.subarray(HEADER_BYTES) : undefined;
}

const CONFLUENT_HEADER_BYTES = 5;

/** The registry's id of the schema of bytes in Confluent framing, else undefined. */
export function confluentSchemaId(bytes: Buffer): number | undefined {
  return framingOf(bytes) === 'CONFLUENT' ? bytes.readUInt32BE(1) : undefined;
}

/** A copy in single-object framing of bytes in Confluent framing; the header says which schema that is. */
export function asSingleObject(header: Buffer, confluent: Buffer): Buffer {
  return frame(header, confluent.subarray(CONFLUENT_HEADER_BYTES));
}

/** A copy in Confluent framing of bytes in single-object framing. */
export function asConfluent(schemaId: number, singleObject: Buffer): Buffer {
  const header = Buffer.alloc(CONFLUENT_HEADER_BYTES);
  header.writeUInt32BE(schemaId, 1);
  return frame(header, singleObject.subarray(HEADER_BYTES));
}

/** The framing of bytes, whatever schema they name; undefined for an unknown framing. */
export function framingOf(bytes: Buffer): Framing | undefined {
  if (bytes.length >= HEADER_BYTES && bytes[0] === MARKER[0] && bytes[1] === MARKER[1]) return 'SINGLE_OBJECT';
  return bytes.length >= CONFLUENT_HEADER_BYTES && bytes[0] === 0 ? 'CONFLUENT' : undefined;
}
