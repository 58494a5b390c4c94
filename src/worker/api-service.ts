import { parseFormKeys } from '../codec/form/keys.ts';
import type { Config } from '../config/config.ts';
import { renewed } from '../core/secret.ts';
import { createApi } from '../http/api.ts';
import { ApiListener } from '../http/api-listener.ts';
import { identifyBy, RateLimit, visitorLimit } from '../http/callers.ts';
import { Issuer } from '../http/issuer.ts';
import { type AskLedger, LedgerIssuer } from '../http/ledger-issuer.ts';
import { LoopShare } from '../http/loop-share.ts';
import type { Log } from '../log.ts';
import type { Metrics } from '../metrics/metrics.ts';
import type { Allocator } from '../pipeline/ports.ts';
import type { Gatekeeper } from './gatekeeper.ts';

export interface ApiServiceOptions {
  readonly config: Config;
  readonly log: Log;
  readonly metrics: Metrics;
  readonly gate: Gatekeeper;
  /** The same one as the pipeline's. */
  readonly allocator: Allocator;
  /** Undefined: no Idempotency-Key, and no numbers of sequences. */
  readonly ledger: AskLedger | undefined;
}

/**
 * The HTTP API, if the configuration has one. It answers 503 until the gate opens. Rejects with CONFIG_INVALID when its
 * port can't be taken.
 */
export async function openApi(options: ApiServiceOptions): Promise<ApiListener | undefined> {
  const { config, log, metrics, gate, allocator, ledger } = options;
  const { layout, maxCount, api, drainTimeoutMs } = config;
  if (api === undefined) return undefined;
  const monotonicMs = () => performance.now();
  const rateLimit = api.rateLimit === undefined ? undefined : new RateLimit(api.rateLimit, monotonicMs);
  const issuer = new Issuer({
    layout,
    source: allocator,
    gateReason: () => gate.reason(),
    monotonicMs,
    rateLimit,
    issued: (count) => metrics.addIds(count),
  });
  const ledgerIssuer =
    ledger &&
    new LedgerIssuer({
      ledger,
      rateLimit,
      monotonicMs,
      observe: (outcome, milliseconds) => metrics.observeHttpLedger(outcome, milliseconds),
    });
  const share = new LoopShare(monotonicMs);
  const identify = identifyBy({
    tokens: api.tokens,
    mutualTls: api.tls?.clientCa !== undefined,
    monotonicMs,
  });
  const admitVisitor = visitorLimit(monotonicMs);
  const { formKeys } = api;
  const keys =
    formKeys &&
    renewed(
      () => [formKeys()],
      ([text = '']) => parseFormKeys(text),
      monotonicMs,
    );
  const onError = (error: unknown) =>
    log.warn({ err: error }, 'the certificates of the HTTP API are unusable; the previous ones stay in use');
  const tls = api.tls && { ...api.tls, monotonicMs, onError };
  return await ApiListener.open({
    host: api.host,
    port: api.port,
    drainMs: drainTimeoutMs,
    createApi: () =>
      createApi({
        layout,
        maxCount,
        issuer,
        ledger: ledgerIssuer,
        share,
        limits: api,
        tls,
        identify,
        admitVisitor,
        formKeys: keys,
        observe: ({ route, status, caller, milliseconds }) => {
          metrics.addHttpRequest(route, status, caller, milliseconds);
        },
        onShed: () => metrics.addShedConnection('api'),
        onError: (error, requestId) =>
          log.error({ err: error, requestId }, 'internal error while serving an HTTP request'),
      }),
    log: (level, message, fields) => log[level](fields, message),
  });
}
