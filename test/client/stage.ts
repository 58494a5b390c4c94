import { onTestFinished } from 'vitest';
import { IdClient } from '../../src/client/client.ts';
import type { BufferOptions } from '../../src/client/options.ts';
import type { OutgoingRequest, Transport, TransportEvents } from '../../src/client/requester.ts';
import { encodeIdReply } from '../../src/codec/id-reply.ts';
import { decodeIdRequest } from '../../src/codec/id-request.ts';
import type { Layout } from '../../src/core/layout.ts';
import { partitionFor } from '../../src/kafka/records/record.ts';
import { VirtualRuntime } from '../support/virtual-runtime.ts';

/** Time that moves when the test says so; what needs no time has run when `pass` resolves, without a turn of Node. */
export class FakeRuntime extends VirtualRuntime {
  #ids = 0;

  constructor() {
    super(1_000);
  }

  override wallMs(): number {
    return this.nowMs;
  }

  override random(): number {
    return 0;
  }

  override uuid(): string {
    this.#ids += 1;
    return `c-${this.#ids}`;
  }

  override async nextTurn(): Promise<void> {}

  override async pass(ms: number): Promise<void> {
    const untilMs = this.nowMs + ms;
    await turns();
    while (this.fire(untilMs)) await turns();
    this.nowMs = Math.max(this.nowMs, untilMs);
  }
}

/** Lets everything run that needs no time; no chain of promises here is longer. */
export async function turns(): Promise<void> {
  for (let turn = 0; turn < 50; turn += 1) await undefined;
}

export interface Sent {
  readonly correlationId: string;
  readonly count: number;
  readonly replyTopic: string | undefined;
  readonly value: Buffer;
  readonly firstSentMs: number | undefined;
  readonly headers: Readonly<Record<string, string>> | undefined;
  readonly isWanted: () => boolean;
}

/** Workers as a client sees them: requests are recorded, and answered when the test says so. */
export class FakeWorkers implements Transport {
  readonly sent: Sent[] = [];
  /** Answer each request at once. */
  answering = true;
  /** The error with which every send fails, if set. */
  broken: Error | undefined;
  closed = 0;
  /** Sends wait for it, if set. */
  gate: { readonly promise: Promise<void>; readonly resolve: () => void } | undefined;
  /** Why replies can't be read, if set. */
  deaf: string | undefined;
  /** The layout that replies name, by fingerprint and by the text in their header; one that is unknown by default. */
  layout: Layout | undefined;
  layoutText: string | undefined;
  /** The next ID to allocate. */
  nextId = 0n;
  /** How many partitions the request topic has; undefined: the client does not know it. */
  partitions: number | undefined;
  #events: TransportEvents | undefined;
  readonly #batches = new Map<string, bigint>();

  readonly link = async (events: TransportEvents): Promise<Transport> => {
    this.#events = events;
    return this;
  };

  async send({ key, value, replyTopic, firstSentMs, headers, isWanted }: OutgoingRequest): Promise<void> {
    if (this.gate !== undefined) await this.gate.promise;
    if (this.broken !== undefined) throw this.broken;
    const request = decodeIdRequest(value);
    const { count } = request;
    this.sent.push({ correlationId: key.toString(), count, replyTopic, value, firstSentMs, headers, isWanted });
    if (this.answering) queueMicrotask(() => this.answer(key.toString(), request.count));
  }

  partitionOf(key: Buffer): number | undefined {
    return this.partitions === undefined ? undefined : partitionFor(key, this.partitions, () => 0);
  }

  trouble(): string | undefined {
    return this.deaf;
  }

  /** Something fails that the transport tries again. */
  fail(error: Error): void {
    this.#events?.onError(error);
  }

  /** Replies go elsewhere from now on. */
  move(replyTopic = 'id.replies.test'): void {
    this.#events?.onMoved(replyTopic);
  }

  async close(): Promise<void> {
    this.closed += 1;
  }

  /** Replies with the batch of a correlation ID: the same one, however often it is requested. */
  answer(correlationId: string, count: number): void {
    const known = this.#batches.get(correlationId);
    const first = known ?? this.nextId;
    if (known === undefined) this.nextId += BigInt(count);
    this.#batches.set(correlationId, first);
    this.reply(correlationId, encodeBatch(correlationId, [{ first, count }], this.layout), known !== undefined);
  }

  refuse(correlationId: string, code: string, message = 'no', retryAfterMs?: number): void {
    const reply = { correlationId: Buffer.from(correlationId), error: { code, message } };
    this.reply(correlationId, encodeIdReply(reply, 'RANGES'), false, retryAfterMs);
  }

  reply(correlationId: string, value: Buffer, replayed = false, retryAfterMs?: number): void {
    const { layoutText } = this;
    this.#events?.onReply({ key: Buffer.from(correlationId), value, replayed, layoutText, retryAfterMs });
  }
}

export function encodeBatch(
  correlationId: string,
  ranges: readonly { first: bigint; count: number }[],
  layout?: Layout,
  step = 1n,
): Buffer {
  const batch = {
    ranges,
    step,
    datacenterId: 4,
    workerId: 18,
    fence: 7n,
    epochMs: layout?.epochMs ?? 1_767_225_600_000,
    layoutFingerprint: layout?.fingerprint ?? '0123456789abcdef',
    generatedAtMs: 1_780_416_300_000,
  };
  return encodeIdReply({ correlationId: Buffer.from(correlationId), batch }, 'RANGES');
}

export interface Staged {
  readonly client: IdClient;
  readonly runtime: FakeRuntime;
  readonly workers: FakeWorkers;
}

/** A client over simulated workers and time, until its test ends; the workers have these fields before it starts. */
export async function stage(options: BufferOptions = {}, fields: Partial<FakeWorkers> = {}): Promise<Staged> {
  const runtime = new FakeRuntime();
  const workers = Object.assign(new FakeWorkers(), fields);
  const client = await IdClient.over({ runtime, replyTopic: 'id.replies.test', link: workers.link }, options);
  onTestFinished(() => client.close());
  await turns();
  return { client, runtime, workers };
}
