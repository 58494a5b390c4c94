import type { Secret } from '../../core/secret.ts';
import { describeError, IdallocError } from '../../errors.ts';

export interface RegistrySettings {
  /** The base URL of Confluent's API, without a trailing slash. */
  readonly url: string;
  readonly auth?: { readonly username: string; readonly password: Secret } | undefined;
}

export interface RegistryTransport {
  readonly fetch: typeof fetch;
  /** The longest time for one call. */
  readonly timeoutMs: number;
}

export type RegistryResponse = { readonly status: number; readonly body: Readonly<Record<string, unknown>> };

const MAX_BODY_BYTES = 256 * 1024;
const CONTENT_TYPE = 'application/vnd.schemaregistry.v1+json';

/**
 * One call of Confluent's API. Throws IdallocError SCHEMA_REGISTRY_UNAVAILABLE for silence, an unreadable answer, and
 * any status other than 200 and those in `expected`. `any answer`: each 4xx is an answer that says no, without a body,
 * except 401, 403 and 429, by which the registry refuses this worker.
 */
export async function callRegistry(
  { url, auth, timeoutMs, fetch: send }: RegistrySettings & RegistryTransport,
  { method, path, json }: { readonly method: string; readonly path: string; readonly json?: object | undefined },
  expected: readonly number[] | 'any answer' = [],
): Promise<RegistryResponse> {
  const basic = auth === undefined ? undefined : Buffer.from(`${auth.username}:${auth.password()}`).toString('base64');
  try {
    const response = await send(`${url}/${path}`, {
      method,
      headers: { 'content-type': CONTENT_TYPE, ...(basic === undefined ? {} : { authorization: `Basic ${basic}` }) },
      redirect: 'error',
      signal: AbortSignal.timeout(timeoutMs),
      body: json === undefined ? null : JSON.stringify(json),
    });
    const { status } = response;
    if (expected === 'any answer' && isNo(status)) {
      await response.body?.cancel();
      return { status, body: {} };
    }
    const text = await bounded(response);
    if (status !== 200 && !(expected !== 'any answer' && expected.includes(status)))
      throw new Error(`status ${status} for ${method} ${path}`);
    const body: unknown = JSON.parse(text);
    return { status, body: typeof body === 'object' && body !== null ? (body as RegistryResponse['body']) : {} };
  } catch (error) {
    const cause = error instanceof Error && error.cause !== undefined ? ` (${describeError(error.cause)})` : '';
    throw unavailable(`${describeError(error)}${cause}`);
  }
}

function isNo(status: number): boolean {
  return status >= 400 && status < 500 && ![401, 403, 429].includes(status);
}

export function unavailable(why: string): IdallocError {
  return new IdallocError('SCHEMA_REGISTRY_UNAVAILABLE', `the schema registry can't be used: ${why}`);
}

async function bounded(response: Response): Promise<string> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of response.body ?? []) {
    bytes += chunk.length;
    if (bytes > MAX_BODY_BYTES) throw new Error(`a response of more than ${MAX_BODY_BYTES} bytes`);
    chunks.push(chunk);
  }
  return Buffer.concat(chunks).toString('utf8');
}
