import { setTimeout as sleep } from 'node:timers/promises';
import type { GateReason } from '../../src/core/gate.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { monoMs, type Reading, ticks, wallMs } from '../../src/core/units.ts';
import { type Answered, type Api, createApi } from '../../src/http/api.ts';
import { identifyBy } from '../../src/http/callers.ts';
import { Issuer } from '../../src/http/issuer.ts';
import { LoopShare } from '../../src/http/loop-share.ts';
import { RateLimit } from '../../src/http/rate-limit.ts';
import type { TlsSettings } from '../../src/http/tls.ts';
import type { Authority } from '../../src/identity/state.ts';
import type { Allocator } from '../../src/pipeline/ports.ts';
import { ReignAllocator } from '../../src/worker/allocator.ts';

export const STAGE_LAYOUT = presetLayout('default');
const STAGE_MAX_COUNT = 100_000;

/** The real allocator under an authority that does not end, with a source that a test can hold up or make fail. */
export class ApiStage {
  reason: GateReason | undefined;
  authority: Authority = {
    ok: true,
    workerId: 18,
    fence: 1n,
    reservation: { from: ticks(0), to: STAGE_LAYOUT.endTicks },
  };
  /** Awaited before each allocation. */
  before: () => Promise<void> = async () => undefined;
  /** Of the issuer and the cache; a test can let time pass. */
  aheadMs = 0;
  issued = 0;
  readonly answered: Answered[] = [];
  shed = 0;
  readonly faults: unknown[] = [];
  /** Lines of name:token, of a stage that was made with some. */
  tokens: string;
  readonly #hasTokens: boolean;
  readonly issuer: Issuer;
  readonly #allocator: ReignAllocator;

  constructor({ tokens, perSecond }: { readonly tokens?: string; readonly perSecond?: number } = {}) {
    this.tokens = tokens ?? '';
    this.#hasTokens = tokens !== undefined;
    const monotonicMs = () => performance.now() + this.aheadMs;
    const readClock = () => ({ reading: now(), verdict: { kind: 'steady' } as const });
    const authority = () => this.authority;
    const options = { layout: STAGE_LAYOUT, datacenterId: 4, readClock, authority, random: Math.random };
    this.#allocator = new ReignAllocator({ ...options, sleep: (delayMs) => sleep(delayMs) });
    const source: Allocator = {
      allocate: async (counts) => {
        await this.before();
        return await this.#allocator.allocate(counts);
      },
    };
    this.issuer = new Issuer({
      layout: STAGE_LAYOUT,
      source,
      gateReason: () => this.reason,
      monotonicMs,
      rateLimit: perSecond === undefined ? undefined : new RateLimit(perSecond, monotonicMs),
      issued: (count) => {
        this.issued += count;
      },
    });
  }

  api(
    limits = { maxConnections: 512, requestTimeoutMs: 5_000 },
    pem?: Pick<TlsSettings, 'cert' | 'key' | 'clientCa'>,
  ): Api {
    const monotonicMs = () => performance.now() + this.aheadMs;
    const onFault = (error: unknown) => this.faults.push(error);
    return createApi({
      layout: STAGE_LAYOUT,
      maxCount: STAGE_MAX_COUNT,
      issuer: this.issuer,
      share: new LoopShare(() => performance.now()),
      limits,
      tls: pem && { ...pem, monotonicMs, onFault },
      identify: identifyBy({
        tokens: this.#hasTokens ? () => this.tokens : undefined,
        mutualTls: pem?.clientCa !== undefined,
        monotonicMs,
      }),
      observe: (answered) => this.answered.push(answered),
      onShed: () => {
        this.shed += 1;
      },
      onFault,
    });
  }
}

function now(): Reading {
  return { wall: wallMs(Date.now()), mono: monoMs(performance.now()) };
}
