import { channel } from 'node:diagnostics_channel';
import { emitWarning } from 'node:process';
import type { Runtime } from '../async/runtime.ts';
import { Throttle } from '../async/throttle.ts';
import { inMicrotask } from '../async/waiting.ts';
import { describeError, IdallocError } from '../errors.ts';
import { kafkaErrorCode } from '../kafka/wire/kafka-error.ts';
import type { MetricsRecorder } from './metrics.ts';

/**
 * Events of the client. Hooks run in a microtask of their own, so one that throws or rejects does not disturb the
 * client: onError gets HOOK_FAILED. They may be the methods of a class.
 */
export interface ClientHooks {
  /** A request is sent; attempt is 1 the first time. */
  readonly onRequest?: (event: { correlationId: string; count: number; attempt: number }) => void;
  /** A request was answered with a batch. */
  readonly onReply?: (event: { correlationId: string; count: number; latencyMs: number; replayed: boolean }) => void;
  /** A batch was added to the buffer, which now holds `buffered` IDs. */
  readonly onBatch?: (event: { count: number; buffered: number; lowWater: number }) => void;
  /** For logs: an operation failed and will be retried. At most once in 10 s per cause. */
  readonly onError?: (error: Error) => void;
}

type HookName = keyof ClientHooks;
type EventOf<K extends HookName> = Parameters<NonNullable<ClientHooks[K]>>[0];

/** For tools that watch every client of a process. They cost nothing without a subscriber. */
const CHANNELS = {
  onRequest: channel('idalloc:client:request'),
  onReply: channel('idalloc:client:reply'),
  onBatch: channel('idalloc:client:batch'),
  onError: channel('idalloc:client:error'),
} as const satisfies Record<HookName, unknown>;
const NAMES = Object.keys(CHANNELS);
const REPORT_EVERY_MS = 10_000;

/** What is wrong with the hooks of a client, for CONFIG_INVALID. */
export function hookProblems(hooks: unknown): string[] {
  if (typeof hooks !== 'object' || hooks === null) return [`hooks must be an object with ${NAMES.join(', ')}`];
  return [...hookNames(hooks)].flatMap((name) => {
    if (!NAMES.includes(name)) return [`hooks has ${name}, which is no hook: there are ${NAMES.join(', ')}`];
    const hook: unknown = (hooks as Record<string, unknown>)[name];
    if (hook === undefined || typeof hook === 'function') return [];
    return [`hooks.${name} must be a function, not ${hook === null ? 'null' : typeof hook}`];
  });
}

/** The names that look like those of hooks, also of methods of a class. It may have fields of its own beside them. */
function hookNames(hooks: object): Set<string> {
  const names = new Set<string>();
  for (let at: object | null = hooks; at !== null; at = Object.getPrototypeOf(at)) {
    for (const name of Object.getOwnPropertyNames(at)) if (isLikeHook(name)) names.add(name);
  }
  return names;
}

function isLikeHook(name: string): boolean {
  return /^on[A-Z]/.test(name) || NAMES.some((known) => known.toLowerCase() === name.toLowerCase());
}

/** Tells hooks, channels and metrics what happens in a client. */
export class ClientEvents {
  readonly #hooks: ClientHooks;
  readonly #metrics: MetricsRecorder;
  readonly #throttle: Throttle;
  #hasWarned = false;
  #isClosed = false;

  constructor(hooks: ClientHooks, runtime: Pick<Runtime, 'monotonicMs'>, metrics: MetricsRecorder) {
    this.#hooks = hooks;
    this.#metrics = metrics;
    this.#throttle = new Throttle(runtime, REPORT_EVERY_MS);
  }

  tell<K extends Exclude<HookName, 'onError'>>(name: K, event: EventOf<K>): void {
    this.#tell(name, event, event);
  }

  /**
   * Counts each failure; reports each cause at most once in 10 s: with thousands of requests in progress, an outage
   * causes thousands.
   */
  failed(error: Error): void {
    if (this.#isClosed) return;
    this.#metrics.noteError(error);
    if (this.#throttle.passes(causeOf(error))) this.#tell('onError', error, { error });
  }

  /** What fails from now on is nobody's concern. */
  close(): void {
    this.#isClosed = true;
  }

  #tell<K extends HookName>(name: K, event: EventOf<K>, message: object): void {
    const hooks = this.#hooks;
    const hook = hooks[name] as ((event: EventOf<K>) => unknown) | undefined;
    const to = CHANNELS[name];
    if (hook === undefined && !to.hasSubscribers) return;
    inMicrotask(() => {
      if (this.#isClosed && name === 'onError') return;
      to.publish(message);
      if (hook !== undefined) void this.#attempt(name, () => hook.call(hooks, event));
    });
  }

  async #attempt(name: HookName, call: () => unknown): Promise<void> {
    try {
      await call();
    } catch (error) {
      this.#hookFailed(name, error);
    }
  }

  #hookFailed(name: HookName, cause: unknown): void {
    const error = new IdallocError('HOOK_FAILED', `the hook ${name} failed: ${describeError(cause)}`, { cause });
    const isUnheard = name === 'onError' || this.#hooks.onError === undefined;
    if (isUnheard && !this.#hasWarned) {
      this.#hasWarned = true;
      emitWarning(
        `${error.message}. The client goes on, and does not repeat this warning`,
        'IdallocWarning',
        error.code,
      );
    }
    if (name !== 'onError') this.failed(error);
  }
}

function causeOf(error: Error): string {
  const code = error instanceof IdallocError ? error.code : error.name;
  return `${code} ${kafkaErrorCode(error) ?? ''}`;
}
