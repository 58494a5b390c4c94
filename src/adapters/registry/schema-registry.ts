import { schemaFingerprint } from '../../codec/avro.ts';
import { requestHeaderOf } from '../../codec/id-request.ts';
import { SCHEMAS } from '../../codec/schemas.ts';
import type { Secret } from '../../core/secret.ts';
import { describeError, IdallocError } from '../../errors.ts';
import type { SchemaIds } from '../../pipeline/ports.ts';

interface RegistryDeps extends RegistryTransport {
  readonly monotonicMs: () => number;
}

/**
 * Requests wait for a worker's calls. A command is run by a person, perhaps against a registry that has just started.
 */
const CALL_TIMEOUT_MS = { worker: 2_000, command: 15_000 };

/**
 * How long requests wait for a registry that does not answer; after that those with an unknown schema are
 * dead-lettered.
 */
export const WAIT_LIMIT_MS = 30_000;
/** The pause between two calls to a registry that did not answer. */
const RETRY_DELAY_MS = 1_000;
/** How many versions of the request topic's subject are known without a request that names them: the newest. */
const MAX_VERSIONS = 16;
const MAX_IDS = 10_000;
const AT_ONCE = 8;
/** How long an unknown id is remembered: another node of the registry may have it already. */
const ABSENT_MS = 60_000;
/** Registries number schemas with a positive 32-bit integer; ids above it are refused without a look-up. */
const MAX_SCHEMA_ID = 0x7fff_ffff;
/** What the requests of one partition can cost: look-ups of unknown ids at once, and in a second. */
const LOOK_UPS_AT_ONCE = 32;
const LOOK_UPS_PER_S = 4;
/** Replies go to many topics, so their subject is the record's name. */
const REPLY_SUBJECT = 'idalloc.IdReply';
/** Readers of the first schema can't read numbers, so that one can't be the next version of its subject. */
const NUMBERS_REPLY_SUBJECT = 'idalloc.IdReply-2';
/** Newer workers read older requests; older readers read newer replies. */
const COMPATIBILITY = {
  'id-request': 'BACKWARD',
  'id-request-2': 'BACKWARD',
  'id-reply': 'FORWARD',
  'id-reply-2': 'FORWARD',
} as const;

interface KnownId {
  /** What requestHeader returns; undefined if the registry has no answer for the id. */
  readonly header: Buffer | 'none' | undefined;
  /** The time until which an id counts as unknown that the registry did not have, or did not answer. */
  readonly untilMs?: number | undefined;
}

export interface RegisteredSchema {
  readonly subject: string;
  readonly id: number;
}

type SchemaName = keyof typeof COMPATIBILITY;

/**
 * A client of a schema registry with Confluent's API. Ids never change their meaning, so they are cached, up to a
 * limit.
 */
export class SchemaRegistry implements SchemaIds {
  readonly #settings: RegistrySettings;
  readonly #deps: RegistryDeps;
  readonly #requestTopic: string | undefined;
  /** Oldest first. */
  readonly #ids = new Map<number, KnownId>();
  /** The look-ups that each partition has left, as of a time. */
  readonly #budgets = new Map<number, { readonly left: number; readonly atMs: number }>();
  /** When the subject of requests is looked up again. */
  #findAgainMs = Number.NEGATIVE_INFINITY;
  #replyId: number | undefined;
  #numbersReplyId: number | undefined;
  /** When the schema of replies with numbers is looked up again, if the registry did not have it. */
  #numbersAgainMs = Number.NEGATIVE_INFINITY;
  #failure: { readonly sinceMs: number; readonly lastMs: number; readonly error: IdallocError } | undefined;

  /** `requestTopic`: the schemas of its subject are found before any other. */
  constructor(settings: RegistrySettings, deps: RegistryDeps, requestTopic?: string) {
    this.#requestTopic = requestTopic;
    this.#settings = settings;
    this.#deps = deps;
  }

  requestHeader(id: number): Buffer | 'none' | undefined {
    return id > MAX_SCHEMA_ID ? 'none' : this.#ids.get(id)?.header;
  }

  replyId(): number | undefined {
    return this.#replyId;
  }

  numbersReplyId(): number | undefined {
    return this.#numbersReplyId;
  }

  async learn(ids: ReadonlySet<number>, partition: number): Promise<void> {
    const now = this.#deps.monotonicMs();
    const missing = [...ids].filter((id) => this.#isMissing(id, now));
    if (missing.length === 0 && this.#replyId !== undefined && !this.#lacksNumbers(now)) return;
    if (this.#failure !== undefined && now - this.#failure.lastMs < RETRY_DELAY_MS)
      return this.#wait(this.#failure.error);
    try {
      await this.#findOurs(now);
      await this.#lookAffordable(missing, partition, now);
      this.#failure = undefined;
    } catch (error) {
      if (!(error instanceof IdallocError)) throw error;
      const lastMs = this.#deps.monotonicMs();
      this.#failure = { sinceMs: this.#failure?.sinceMs ?? lastMs, lastMs, error };
      this.#wait(error);
    }
  }

  #isMissing(id: number, nowMs: number): boolean {
    if (id > MAX_SCHEMA_ID) return false;
    const known = this.#ids.get(id);
    return known === undefined || (known.untilMs !== undefined && known.untilMs <= nowMs);
  }

  /**
   * Looks up as many of these ids as the partition's budget has look-ups left. A registry that is down costs nothing.
   */
  async #lookAffordable(missing: readonly number[], partition: number, nowMs: number): Promise<void> {
    const due = missing.filter((id) => this.#isMissing(id, nowMs));
    const budget = this.#budgets.get(partition) ?? { left: LOOK_UPS_AT_ONCE, atMs: nowMs };
    const left = Math.min(LOOK_UPS_AT_ONCE, budget.left + ((nowMs - budget.atMs) * LOOK_UPS_PER_S) / 1_000);
    const ids = due.slice(0, Math.floor(left));
    this.#budgets.set(partition, { left: left - ids.length, atMs: nowMs });
    for (let from = 0; from < ids.length; from += AT_ONCE) {
      const looks = await Promise.allSettled(ids.slice(from, from + AT_ONCE).map((id) => this.#look(id)));
      const failed = looks.find((look) => look.status === 'rejected');
      if (failed === undefined) continue;
      this.#budgets.set(partition, { left, atMs: nowMs });
      throw failed.reason;
    }
  }

  /**
   * Registers the schemas of requests and replies if they are not registered yet, and sets the compatibility of new
   * subjects. Throws IdallocError SCHEMA_INCOMPATIBLE if the registry's rules reject one.
   *
   * @returns the id of each, with its subject; older versions of a subject first
   */
  async register(requestTopic: string): Promise<readonly RegisteredSchema[]> {
    const registered: RegisteredSchema[] = [];
    for (const [subject, name] of schemasOf(requestTopic)) {
      registered.push({ subject, id: await this.#register(subject, SCHEMAS[name], COMPATIBILITY[name]) });
    }
    return registered;
  }

  /**
   * The subjects that lack a schema of this version; changes nothing. Throws IdallocError SCHEMA_REGISTRY_UNAVAILABLE.
   */
  async missing(requestTopic: string): Promise<readonly string[]> {
    const missing = new Set<string>();
    for (const [subject, name] of schemasOf(requestTopic)) {
      if (!missing.has(subject) && (await this.#find(subject, name)) === undefined) missing.add(subject);
    }
    return [...missing];
  }

  /** The registry's response for this version's schema under a subject, if it is registered. */
  async #find(subject: string, name: SchemaName): Promise<RegistryResponse | undefined> {
    const request = { schema: SCHEMAS[name], schemaType: 'AVRO' };
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

  #lacksNumbers(nowMs: number): boolean {
    return this.#numbersReplyId === undefined && nowMs >= this.#numbersAgainMs;
  }

  async #findNumbersReplyId(nowMs: number): Promise<void> {
    const isKnownAbsent = Number.isFinite(this.#numbersAgainMs);
    // Set first: known requests wait for a silent registry once in this time, not at each try.
    if (isKnownAbsent) this.#numbersAgainMs = nowMs + ABSENT_MS;
    const found = await this.#find(NUMBERS_REPLY_SUBJECT, 'id-reply-2');
    if (found === undefined) this.#numbersAgainMs = nowMs + ABSENT_MS;
    else this.#numbersReplyId = idOf(found);
  }

  /**
   * The ids of the reply schemas and of the request topic's subject: valid requests then need no look-up of their own.
   */
  async #findOurs(nowMs: number): Promise<void> {
    if (this.#lacksNumbers(nowMs)) await this.#findNumbersReplyId(nowMs);
    if (this.#replyId === undefined) this.#replyId = await this.#findReplyId();
    if (this.#requestTopic === undefined || nowMs < this.#findAgainMs) return;
    this.#findAgainMs = nowMs + ABSENT_MS;
    try {
      await this.#findVersions(`subjects/${encodeURIComponent(`${this.#requestTopic}-value`)}/versions`);
    } catch {
      // The subject may be closed to this worker, or missing: ids are looked up one by one then.
      this.#findAgainMs = nowMs + RETRY_DELAY_MS;
    }
  }

  async #findVersions(path: string): Promise<void> {
    const { body } = await this.#call('GET', path);
    const newest = Object.values(body).slice(-MAX_VERSIONS);
    for (let from = 0; from < newest.length; from += AT_ONCE) {
      const some = newest.slice(from, from + AT_ONCE);
      const found = await Promise.all(some.map((version) => this.#call('GET', `${path}/${Number(version)}`)));
      for (const response of found) this.#remember(idOf(response), { header: headerOf(response) });
    }
  }

  /**
   * Looks an id up. If that fails although the registry answers for our own schema, the cause is this id: it is tried
   * once more, then left unknown for a while, so that no other request waits for it. Rejects if the registry does not
   * answer.
   */
  async #look(id: number): Promise<void> {
    try {
      await this.#lookOnce(id);
    } catch {
      await this.#findReplyId();
      const untilMs = this.#deps.monotonicMs() + ABSENT_MS;
      await this.#lookOnce(id).catch(() => this.#remember(id, { header: undefined, untilMs }));
    }
  }

  async #lookOnce(id: number): Promise<void> {
    const response = await this.#call('GET', `schemas/ids/${id}`, undefined, 'any answer');
    const untilMs = this.#deps.monotonicMs() + ABSENT_MS;
    this.#remember(id, { header: headerOf(response), untilMs: response.status === 200 ? undefined : untilMs });
  }

  #remember(id: number, known: KnownId): void {
    if (this.#ids.size >= MAX_IDS && !this.#ids.has(id)) this.#forgetOne();
    this.#ids.set(id, known);
  }

  /** Evicts the oldest id that is not of a request schema: made-up ids must not evict those of valid requests. */
  #forgetOne(): void {
    const useless = this.#ids.entries().find(([, { header }]) => header === undefined || header === 'none');
    const [id] = useless ?? this.#ids.entries().next().value ?? [];
    if (id !== undefined) this.#ids.delete(id);
  }

  #call(method: string, path: string, json?: object, expected?: Parameters<typeof callRegistry>[2]) {
    return callRegistry({ ...this.#settings, ...this.#deps }, { method, path, json }, expected);
  }
}

/** The configured registry, if there is one. A worker names its request topic: see SchemaRegistry. */
export function openRegistry(
  settings: RegistrySettings | undefined,
  requestTopic?: string,
): SchemaRegistry | undefined {
  const timeoutMs = requestTopic === undefined ? CALL_TIMEOUT_MS.command : CALL_TIMEOUT_MS.worker;
  const deps = { monotonicMs: () => performance.now(), fetch: globalThis.fetch, timeoutMs };
  return settings && new SchemaRegistry(settings, deps, requestTopic);
}

/** Each schema with its subject, in the order of its versions. */
function schemasOf(requestTopic: string) {
  return [
    [`${requestTopic}-value`, 'id-request'],
    [`${requestTopic}-value`, 'id-request-2'],
    [REPLY_SUBJECT, 'id-reply'],
    [NUMBERS_REPLY_SUBJECT, 'id-reply-2'],
  ] as const;
}

function headerOf({ status, body }: RegistryResponse): Buffer | 'none' {
  const isAvro = body.schemaType === undefined || body.schemaType === 'AVRO';
  const print = status === 200 && isAvro ? schemaFingerprint(String(body.schema)) : undefined;
  return (print && requestHeaderOf(print)) ?? 'none';
}

function idOf({ body }: RegistryResponse): number {
  const { id } = body;
  if (typeof id === 'number' && Number.isInteger(id) && id >= 0 && id <= MAX_SCHEMA_ID) return id;
  throw unavailable('it answered without a schema id');
}

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
