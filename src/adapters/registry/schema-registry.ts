import { schemaFingerprint, schemaText } from '../../codec/avro.ts';
import { ID_REQUEST_FINGERPRINT } from '../../codec/id-request.ts';
import type { Secret } from '../../core/secret.ts';
import { describeError, IdallocError } from '../../errors.ts';
import type { SchemaIds } from '../../pipeline/ports.ts';

export interface RegistrySettings {
  /** The base URL of Confluent's API, without a trailing slash. */
  readonly url: string;
  readonly auth?: { readonly username: string; readonly password: Secret };
}

interface RegistryDeps {
  readonly monotonicMs: () => number;
  readonly fetch: typeof fetch;
}

/** How long requests wait for a registry that does not answer; after that those with an unknown schema are dead-lettered. */
export const WAIT_LIMIT_MS = 30_000;
const CALL_TIMEOUT_MS = 2_000;
/** The pause between two calls to a registry that did not answer. */
const RETRY_DELAY_MS = 1_000;
const MAX_IDS = 10_000;
const AT_ONCE = 8;
/** How long an unknown id is remembered: another node of the registry may have it already. */
const ABSENT_MS = 60_000;
const MAX_BODY_BYTES = 256 * 1024;
const CONTENT_TYPE = 'application/vnd.schemaregistry.v1+json';
/** Replies go to many topics, so their subject is the record's name. */
const REPLY_SUBJECT = 'idalloc.IdReply';
/** Newer workers read older requests; older readers read newer replies. */
const COMPATIBILITY = { 'id-request': 'BACKWARD', 'id-reply': 'FORWARD' } as const;

type SchemaName = keyof typeof COMPATIBILITY;
type RegistryResponse = { readonly status: number; readonly body: Readonly<Record<string, unknown>> };

/** A client of a schema registry with Confluent's API. Ids never change their meaning, so they are cached, up to a limit. */
export class SchemaRegistry implements SchemaIds {
  readonly #settings: RegistrySettings;
  readonly #deps: RegistryDeps;
  /** Oldest first. `untilMs` is set for an id that the registry did not have. */
  readonly #ids = new Map<number, { readonly isRequest: boolean; readonly untilMs?: number }>();
  #replyId: number | undefined;
  #failure: { readonly sinceMs: number; readonly lastMs: number; readonly error: IdallocError } | undefined;

  constructor(settings: RegistrySettings, deps: RegistryDeps) {
    this.#settings = settings;
    this.#deps = deps;
  }

  isRequest(id: number): boolean | undefined {
    return this.#ids.get(id)?.isRequest;
  }

  replyId(): number | undefined {
    return this.#replyId;
  }

  async learn(ids: ReadonlySet<number>): Promise<void> {
    const now = this.#deps.monotonicMs();
    const missing = [...ids].filter(
      (id) => (this.#ids.get(id)?.untilMs ?? Number.POSITIVE_INFINITY) <= now || !this.#ids.has(id),
    );
    if (missing.length === 0 && this.#replyId !== undefined) return;
    if (this.#failure !== undefined && now - this.#failure.lastMs < RETRY_DELAY_MS)
      return this.#wait(this.#failure.error);
    try {
      if (this.#replyId === undefined) this.#replyId = await this.#findReplyId();
      for (let from = 0; from < missing.length; from += AT_ONCE) {
        await Promise.all(missing.slice(from, from + AT_ONCE).map((id) => this.#look(id)));
      }
      this.#failure = undefined;
    } catch (error) {
      if (!(error instanceof IdallocError)) throw error;
      const lastMs = this.#deps.monotonicMs();
      this.#failure = { sinceMs: this.#failure?.sinceMs ?? lastMs, lastMs, error };
      this.#wait(error);
    }
  }

  /**
   * Registers the schemas of requests and replies if they are not registered yet, and sets the compatibility of new
   * subjects. Throws IdallocError SCHEMA_INCOMPATIBLE if the registry's rules reject one.
   *
   * @returns the subjects, with the schemas' ids
   */
  async register(requestTopic: string): Promise<Readonly<Record<string, number>>> {
    const ids: Record<string, number> = {};
    for (const [subject, name] of subjectsOf(requestTopic)) {
      ids[subject] = await this.#register(subject, schemaText(name), COMPATIBILITY[name]);
    }
    return ids;
  }

  /** The subjects that do not have this version's schema; changes nothing. Throws IdallocError SCHEMA_REGISTRY_UNAVAILABLE. */
  async missing(requestTopic: string): Promise<readonly string[]> {
    const missing: string[] = [];
    for (const [subject, name] of subjectsOf(requestTopic)) {
      if ((await this.#find(subject, name)) === undefined) missing.push(subject);
    }
    return missing;
  }

  /** The registry's response for this version's schema under a subject, if it is registered. */
  async #find(subject: string, name: SchemaName): Promise<RegistryResponse | undefined> {
    const request = { schema: schemaText(name), schemaType: 'AVRO' };
    const found = await this.#call('POST', `subjects/${encodeURIComponent(subject)}`, request, [404]);
    return found.status === 200 ? found : undefined;
  }

  async #register(subject: string, schema: string, compatibility: string): Promise<number> {
    const path = `subjects/${encodeURIComponent(subject)}`;
    const before = await this.#call('GET', `${path}/versions`, undefined, [404]);
    if (before.status === 404) await this.#call('PUT', `config/${encodeURIComponent(subject)}`, { compatibility });
    const made = await this.#call('POST', `${path}/versions`, { schema, schemaType: 'AVRO' }, [409, 422]);
    if (made.status !== 200) {
      const why = String(made.body.message ?? made.status);
      throw new IdallocError('SCHEMA_INCOMPATIBLE', `the registry refuses the schema for subject '${subject}': ${why}`);
    }
    return idOf(made);
  }

  /** Throws while requests should wait for the registry. */
  #wait(error: IdallocError): void {
    if (this.#deps.monotonicMs() - (this.#failure?.sinceMs ?? 0) < WAIT_LIMIT_MS) throw error;
  }

  async #findReplyId(): Promise<number> {
    const found = await this.#find(REPLY_SUBJECT, 'id-reply');
    if (found !== undefined) return idOf(found);
    throw unavailable(`it has no subject '${REPLY_SUBJECT}' with this worker's schema: run \`idalloc topics init\``);
  }

  async #look(id: number): Promise<void> {
    const { status, body } = await this.#call('GET', `schemas/ids/${id}`, undefined, [404]);
    const isAvro = body.schemaType === undefined || body.schemaType === 'AVRO';
    const print = status === 200 && isAvro ? schemaFingerprint(String(body.schema)) : undefined;
    if (this.#ids.size >= MAX_IDS) this.#forgetOne();
    const untilMs = this.#deps.monotonicMs() + ABSENT_MS;
    const isRequest = print?.equals(ID_REQUEST_FINGERPRINT) === true;
    this.#ids.set(id, { isRequest, ...(status === 404 ? { untilMs } : {}) });
  }

  /** Evicts the oldest id that is not of a request schema: made-up ids must not evict those of valid requests. */
  #forgetOne(): void {
    const useless = this.#ids.entries().find(([, { isRequest }]) => !isRequest);
    const [id] = useless ?? this.#ids.entries().next().value ?? [];
    if (id !== undefined) this.#ids.delete(id);
  }

  /** Throws for any status other than 200 and those in `expected`. */
  async #call(
    method: string,
    path: string,
    json?: object,
    expected: readonly number[] = [],
  ): Promise<RegistryResponse> {
    const { url, auth } = this.#settings;
    const basic =
      auth === undefined ? undefined : Buffer.from(`${auth.username}:${auth.password()}`).toString('base64');
    try {
      const response = await this.#deps.fetch(`${url}/${path}`, {
        method,
        headers: { 'content-type': CONTENT_TYPE, ...(basic === undefined ? {} : { authorization: `Basic ${basic}` }) },
        redirect: 'error',
        signal: AbortSignal.timeout(CALL_TIMEOUT_MS),
        ...(json === undefined ? {} : { body: JSON.stringify(json) }),
      });
      const { status } = response;
      const text = await bounded(response);
      if (status !== 200 && !expected.includes(status)) throw new Error(`status ${status} for ${method} ${path}`);
      const body: unknown = JSON.parse(text);
      return { status, body: typeof body === 'object' && body !== null ? (body as RegistryResponse['body']) : {} };
    } catch (error) {
      const cause = error instanceof Error && error.cause !== undefined ? ` (${describeError(error.cause)})` : '';
      throw unavailable(`${describeError(error)}${cause}`);
    }
  }
}

/** The configured registry, if there is one. */
export function openRegistry(settings: RegistrySettings | undefined): SchemaRegistry | undefined {
  return settings && new SchemaRegistry(settings, { monotonicMs: () => performance.now(), fetch: globalThis.fetch });
}

function subjectsOf(requestTopic: string) {
  return [
    [`${requestTopic}-value`, 'id-request'],
    [REPLY_SUBJECT, 'id-reply'],
  ] as const;
}

function idOf({ body }: RegistryResponse): number {
  const { id } = body;
  if (typeof id === 'number' && Number.isInteger(id) && id >= 0 && id <= 0xffff_ffff) return id;
  throw unavailable('it answered without a schema id');
}

function unavailable(why: string): IdallocError {
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
