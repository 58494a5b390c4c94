import { setTimeout as sleep } from 'node:timers/promises';
import { type GateReason, isEjection } from '../core/gate.ts';
import { formatHostPort } from '../core/host-port.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { Api } from './api.ts';

export interface ApiListenerOptions {
  readonly host: string;
  /** 0: any free port, the same one after each reopening. */
  readonly port: number;
  /** `isEnding`: whether each response ends its connection. */
  readonly createApi: (isEnding: () => boolean) => Api;
  /** Longest time to finish responses at shutdown. */
  readonly drainMs: number;
  readonly log: (level: 'info' | 'warn', message: string, fields: Readonly<Record<string, unknown>>) => void;
}

const RETRY_MS = 1_000;
const CHECK_MS = 50;

/**
 * The port of the HTTP API.
 *
 *   open -> shut    ejected: clock or lease can't be trusted. Connections are cut, so that clients move to another
 *                   worker
 *   shut -> open    the gate opens again; while another process has the port, opening is retried
 *   any  -> ended   no new connections; responses in progress are finished, within a limit
 *
 * Before its end it may be announced: the port serves on, and each response ends its connection, so that clients and
 * load balancers are at other workers when it closes.
 *
 * A gate that is closed for any other reason leaves the port open, and responses give the reason. Opening and closing
 * take time and never overlap; each step is decided when it starts.
 */
export class ApiListener {
  readonly #options: ApiListenerOptions;
  #wanted: 'open' | 'shut' | 'ended' = 'open';
  #api: Api | undefined;
  #port: number;
  #step: Promise<void> | undefined;
  #isEnding = false;

  private constructor(options: ApiListenerOptions) {
    this.#options = options;
    this.#port = options.port;
  }

  /** Opens the port for the first time. Rejects with CONFIG_INVALID when it can't be taken. */
  static async open(options: ApiListenerOptions): Promise<ApiListener> {
    const listener = new ApiListener(options);
    try {
      await listener.#listen();
    } catch (error) {
      const message = `cannot listen on ${formatHostPort(options)} (${describeError(error)}): set API_PORT to a free port, or correct API_HOST`;
      throw new IdallocError('CONFIG_INVALID', message, { cause: error });
    }
    return listener;
  }

  /** Follows the gate: `reason` says why it is closed, undefined that it is open. */
  gateChanged(reason: GateReason | undefined): void {
    if (this.#wanted === 'ended') return;
    if (reason === 'STOPPING') this.#wanted = 'ended';
    else if (reason === undefined) this.#wanted = 'open';
    else if (isEjection(reason)) this.#wanted = 'shut';
    this.#settle();
  }

  /** From now on each response ends its connection. */
  announceEnd(): void {
    this.#isEnding = true;
  }

  /** Resolves when no response is in progress. */
  async stop(): Promise<void> {
    this.gateChanged('STOPPING');
    while (this.#step !== undefined) await this.#step;
  }

  /** Takes a step towards the wanted state; if one is in progress, the next follows it. */
  #settle(): void {
    const isOpen = this.#api !== undefined;
    if (this.#step !== undefined || isOpen === (this.#wanted === 'open')) return;
    const step = isOpen ? this.#close() : this.#reopen();
    this.#step = step.finally(() => {
      this.#step = undefined;
      this.#settle();
    });
  }

  async #listen(): Promise<void> {
    const { host, createApi, log } = this.#options;
    const api = createApi(() => this.#isEnding);
    try {
      await api.app.listen({ host, port: this.#port });
    } catch (error) {
      await api.app.close();
      throw error;
    }
    const address = api.app.server.address();
    if (address === null || typeof address === 'string') throw new TypeError('a TCP listener has an address');
    this.#port = address.port;
    this.#api = api;
    log('info', 'the HTTP API is listening', { host, port: address.port });
  }

  async #reopen(): Promise<void> {
    try {
      await this.#listen();
    } catch (error) {
      this.#options.log('warn', 'the HTTP port could not be reopened; retrying', { error: describeError(error) });
      for (let delayMs = RETRY_MS; delayMs > 0 && this.#wanted === 'open'; delayMs -= CHECK_MS) {
        await sleep(CHECK_MS);
      }
    }
  }

  async #close(): Promise<void> {
    const api = this.#api;
    this.#api = undefined;
    if (api === undefined) return;
    api.app.server.close(); // immediately; Fastify would close it later
    if (this.#wanted === 'ended') await this.#drain(api);
    api.app.server.closeAllConnections();
    await api.app.close();
    this.#options.log('info', 'the HTTP port is closed', {});
  }

  async #drain({ inFlight }: Api): Promise<void> {
    for (let delayMs = this.#options.drainMs; delayMs > 0 && inFlight() > 0; delayMs -= CHECK_MS) await sleep(CHECK_MS);
  }
}
