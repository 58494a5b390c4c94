import { setTimeout as sleep } from 'node:timers/promises';
import type { FormKeys } from '../../src/codec/form/keys.ts';
import type { GateReason } from '../../src/core/gate.ts';
import type { Layout } from '../../src/core/layout.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { monoMs, type Reading, ticks, wallMs } from '../../src/core/units.ts';
import { type Api, type ApiOptions, createApi, type HandledRequest } from '../../src/http/api.ts';
import { identifyBy, RateLimit, visitorLimit } from '../../src/http/callers.ts';
import { Issuer } from '../../src/http/issuer.ts';
import { type AskLedger, LedgerIssuer } from '../../src/http/ledger-issuer.ts';
import { LoopShare } from '../../src/http/loop-share.ts';
import type { TlsSettings } from '../../src/http/tls-server.ts';
import type { Authority } from '../../src/identity/state.ts';
import type { Allocator } from '../../src/pipeline/ports.ts';
import { LeasedAllocator } from '../../src/worker/allocator.ts';
import { guardedReading } from './guarded-reading.ts';

export const STAGE_LAYOUT = presetLayout('default');
const STAGE_MAX_COUNT = 100_000;

interface StageOptions {
  readonly tokens?: string;
  readonly perSecond?: number;
  readonly layout?: Layout;
  /** Without it, there is no Idempotency-Key, and no sequence. */
  readonly ledger?: AskLedger;
  readonly maxWaiting?: number;
}

/** The real allocator under an authority that does not expire; a test can delay it or make it fail. */
export class ApiStage {
  reason: GateReason | undefined;
  authority: Authority;
  /** Awaited before each allocation. */
  before: () => Promise<void> = async () => undefined;
  /** Added to the clock of the limits, so that a test can let time pass. */
  aheadMs = 0;
  /** Where the clock stands still; undefined while it runs. */
  standsAtMs: number | undefined;
  issued = 0;
  readonly answered: HandledRequest[] = [];
  /** Of what was asked of the ledger. */
  readonly ledgerOutcomes: string[] = [];
  shed = 0;
  readonly faults: unknown[] = [];
  /** The IDs of the requests with internal errors. */
  readonly faultyIds: string[] = [];
  /** Lines of name:token, if the stage was created with tokens. */
  tokens: string;
  formKeys: FormKeys | undefined;
  readonly #hasTokens: boolean;
  readonly issuer: Issuer;
  readonly ledger: LedgerIssuer | undefined;
  readonly #layout: Layout;
  readonly #allocator: LeasedAllocator;

  constructor({ tokens, perSecond, layout = STAGE_LAYOUT, ledger, maxWaiting }: StageOptions = {}) {
    this.#layout = layout;
    this.authority = { ok: true, workerId: 18, fence: 1n, reservation: { from: ticks(0), to: layout.endTicks } };
    this.tokens = tokens ?? '';
    this.#hasTokens = tokens !== undefined;
    const monotonicMs = () => (this.standsAtMs ?? performance.now()) + this.aheadMs;
    const readClock = () => guardedReading(now());
    const authority = () => this.authority;
    const datacenterId = Math.min(4, layout.maxDatacenter);
    const options = { layout, datacenterId, readClock, authority, random: () => 0.5 };
    this.#allocator = new LeasedAllocator({ ...options, sleep: (delayMs) => sleep(delayMs) });
    const source: Allocator = {
      holds: (allocation) => this.#allocator.holds(allocation),
      allocate: async (counts) => {
        await this.before();
        return await this.#allocator.allocate(counts);
      },
    };
    const rateLimit = perSecond === undefined ? undefined : new RateLimit(perSecond, monotonicMs);
    const waiting = maxWaiting === undefined ? {} : { maxWaiting };
    this.ledger =
      ledger &&
      new LedgerIssuer({
        ledger,
        rateLimit,
        ...waiting,
        monotonicMs,
        observe: (outcome) => this.ledgerOutcomes.push(outcome),
      });
    this.issuer = new Issuer({
      layout,
      source,
      gateReason: () => this.reason,
      monotonicMs,
      rateLimit,
      issued: (count) => {
        this.issued += count;
      },
    });
  }

  api(
    limits: ApiOptions['limits'] = { maxConnections: 512, requestTimeoutMs: 60_000 },
    pem?: Pick<TlsSettings, 'cert' | 'key' | 'clientCa'>,
    isEnding = () => false,
  ): Api {
    const monotonicMs = () => (this.standsAtMs ?? performance.now()) + this.aheadMs;
    const onError = (error: unknown) => this.faults.push(error);
    return createApi({
      isEnding,
      layout: this.#layout,
      formKeys: this.formKeys && (() => this.formKeys as FormKeys),
      maxCount: STAGE_MAX_COUNT,
      issuer: this.issuer,
      ledger: this.ledger,
      share: new LoopShare(() => performance.now()),
      limits,
      tls: pem && { ...pem, monotonicMs, wallMs: () => Date.now() + this.aheadMs, onError },
      identify: identifyBy({
        tokens: this.#hasTokens ? () => this.tokens : undefined,
        mutualTls: pem?.clientCa !== undefined,
        monotonicMs,
      }),
      admitVisitor: visitorLimit(monotonicMs),
      observe: (answered) => this.answered.push(answered),
      onShed: () => {
        this.shed += 1;
      },
      onError: (error, requestId) => {
        onError(error);
        this.faultyIds.push(requestId);
      },
    });
  }
}

function now(): Reading {
  return { wall: wallMs(Date.now()), mono: monoMs(performance.now()) };
}
