import { asSingleObject, confluentSchemaId } from '../codec/framing.ts';
import { IdallocError } from '../errors.ts';
import type { RequestRecord, SchemaIds } from './ports.ts';

/**
 * Looks up the schema IDs of these records of a partition in the registry. Returns the records that can be read now, in
 * order: all of them, or those before the first whose schema is still unknown, with the error that keeps the others
 * waiting.
 */
export async function withSchemas(
  schemas: SchemaIds | undefined,
  records: readonly RequestRecord[],
  partition: number,
): Promise<{ readonly ready: readonly RequestRecord[]; readonly error?: unknown }> {
  if (schemas === undefined) return { ready: records };
  const ids = records.map(({ value }) => (value === null ? undefined : confluentSchemaId(value)));
  const schemaIds = new Set(ids.filter((id) => id !== undefined));
  if (schemaIds.size === 0) return { ready: records };
  try {
    await schemas.learn(schemaIds, partition);
    return { ready: records };
  } catch (error) {
    const waiting = ids.findIndex((id) => id !== undefined && !isLearned(schemas, id));
    return waiting < 0 ? { ready: records } : { ready: records.slice(0, waiting), error };
  }
}

/**
 * Converts a value in Confluent framing to single-object framing. Undefined for any other value, and without a
 * registry. Throws IdallocError UNKNOWN_SCHEMA, and SCHEMA_REGISTRY_UNAVAILABLE after the registry has been silent for
 * too long.
 */
export function fromConfluent(schemas: SchemaIds | undefined, value: Buffer | null): Buffer | undefined {
  const id = schemas === undefined || value === null ? undefined : confluentSchemaId(value);
  if (schemas === undefined || value === null || id === undefined) return undefined;
  const header = schemas.requestHeader(id);
  if (header === 'none') {
    throw new IdallocError(
      'UNKNOWN_SCHEMA',
      `schema ${id} of the registry is not an IdRequest schema that this worker knows: use the one that \`idalloc topics init\` registers`,
    );
  }
  if (header !== undefined && isLearned(schemas, id)) return asSingleObject(header, value);
  throw new IdallocError(
    'SCHEMA_REGISTRY_UNAVAILABLE',
    `the schema registry did not return schema ${id} in time, or the partition named too many unknown schemas: register it for the request topic, and send the request again once the registry answers`,
  );
}

function isLearned(schemas: SchemaIds, id: number): boolean {
  const header = schemas.requestHeader(id);
  return header === 'none' || (header !== undefined && schemas.replyId() !== undefined);
}
