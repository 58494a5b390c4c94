import type { IdClientOptions } from '../../src/client/index.ts';
import { Rng } from '../sim/rng.ts';
import { IdRuns } from '../support/id-runs.ts';
import { Realm, SHORT_SESSION } from '../support/realm.ts';
import type { SuiteServers } from '../support/servers.ts';
import {
  ASKING,
  BESIDE_FLOOD,
  FLOODING,
  SERVICE_SUSPENDED,
  SOAK_FAULTS,
  type SoakScene,
  SUSPENDED,
} from './soak-faults.ts';
import type { ServicePlan } from './soak-service.ts';
import { Probes, Service } from './soak-stage.ts';
import { allowedBy, type Failure, growth, type Span, sharedMs, slopePerMinute } from './soak-verdict.ts';

/**
 * A soak of the client library: services in processes of their own on real servers, of which some take from their
 * buffers, some wait for IDs, some request batches, while workers are killed and suspended, a partition is stuck, the
 * broker stops, a service is suspended, and another service floods. All IDs are compared, and each failed call is
 * judged by soak-verdict.ts.
 */
export interface SoakOptions {
  readonly servers: SuiteServers;
  /** Faults begin for this time, but each of them occurs once at least. */
  readonly forMs: number;
  readonly seed: number;
  /** Faults last so many times as long as in the shortest soak. */
  readonly scale: number;
  /** Only faults whose names contain this. */
  readonly only?: string;
  readonly trace: (line: string) => void;
}

/** Counts by service, call and code. */
type Counts = Readonly<Record<string, number>>;

export interface SoakReport {
  readonly seconds: number;
  readonly faults: Counts;
  readonly ids: number;
  readonly duplicates: number;
  readonly calls: Counts;
  readonly failures: number;
  /** Failed calls with the rule that allows them. */
  readonly allowed: Counts;
  /** How long no partition was served, and how long at least one was not, in seconds. */
  readonly dark_s: readonly [all: number, some: number];
  readonly services: Readonly<Record<string, object>>;
  /** What must not be; a good soak has none. */
  readonly findings: readonly string[];
}

const PARTITIONS = 6;
const WORKERS = 3;
/** After a fault each partition is to be served again within this time, on a busy machine too. */
const SERVED_AGAIN_MS = 180_000;
const STEADY = { idsPerSecond: 1_500, coverSeconds: 5 };
const DEFAULT_AGE_MS = 60_000;
const DEFAULT_COVER_SECONDS = 20;
/** More than what compiled code, a full buffer and a second's replies take. */
const HEAP_GROWTH_BYTES = 24 * 2 ** 20;
const RSS_GROWTH_BYTES = 160 * 2 ** 20;

function plansOf(servers: SuiteServers, realm: Realm, replyTopic: (name: string) => string): ServicePlan[] {
  const plan = (name: string, options: Partial<IdClientOptions>, more: Partial<ServicePlan>): ServicePlan => {
    const { requestTopic } = realm;
    const client = { brokers: servers.brokers, requestTopic, replyTopic: replyTopic(name), ...options };
    return { name, client: client as IdClientOptions, maxAgeMs: DEFAULT_AGE_MS, ...more };
  };
  const takes = { counts: [50, 1_000, 20_000], everyMs: 400, callers: 2 };
  return [
    plan(BESIDE_FLOOD, { ...STEADY, timeoutMs: 60_000 }, { idsPerSecond: STEADY.idsPerSecond }),
    // All options have their defaults, and it takes one ID a second: how old are its IDs?
    plan('idle', {}, { idsPerSecond: 1 }),
    plan('waiting', { idsPerSecond: 200, timeoutMs: 60_000 }, { idsPerSecond: 200, takes }),
    plan(ASKING, { prefetch: false }, { asks: { count: 3, everyMs: 50, timeoutMs: 60_000 } }),
    plan(SUSPENDED, { idsPerSecond: 100 }, { idsPerSecond: 100, asks: { count: 1, everyMs: 200, timeoutMs: 6_000 } }),
    plan(FLOODING, { prefetch: false }, { floods: { count: 100_000, inProgress: 1_200, timeoutMs: 300_000 } }),
  ];
}

/** Plays all faults in an order of the seed, again and again until the time is over. */
async function playFaults(scene: SoakScene, probes: Probes, options: SoakOptions, findings: string[]) {
  const rng = new Rng(options.seed);
  const faults = SOAK_FAULTS.filter(({ name }) => name.includes(options.only ?? ''));
  const begunMs = performance.now();
  const played: (Span & { readonly name: string })[] = [];
  do {
    const drawn = faults.map((fault) => ({ fault, at: rng.next() })).sort((one, other) => one.at - other.at);
    for (const { fault } of drawn) {
      options.trace(`${Math.round((performance.now() - begunMs) / 1_000)} s: ${fault.name}`);
      const fromMs = Date.now();
      await fault.play(scene);
      played.push({ name: fault.name, fromMs, toMs: Date.now() });
      const unserved = await probes.answered(SERVED_AGAIN_MS);
      if (unserved.length > 0) findings.push(`partitions ${unserved} are not served after: ${fault.name}`);
    }
  } while (performance.now() - begunMs < options.forMs);
  return played;
}

const countBy = (all: readonly (readonly [name: string, times: number])[]): Counts => {
  const counts: Record<string, number> = {};
  for (const [name, times] of all) counts[name] = (counts[name] ?? 0) + times;
  return counts;
};

function callerOf({ plan }: Service, played: readonly (Span & { readonly name: string })[]) {
  const suspended = plan.name === SUSPENDED ? played.filter(({ name }) => name === SERVICE_SUSPENDED) : [];
  const { coverSeconds = DEFAULT_COVER_SECONDS, idsPerSecond = plan.idsPerSecond ?? 1 } = plan.client;
  return { coverMs: 1_000 * coverSeconds, idsPerSecond, suspended };
}

const megabytes = (bytes: number): number => Number((bytes / 2 ** 20).toFixed(1));
const rounded = (value: number): number => Number(value.toFixed(1));

const countsOf = ({ requests, resends, dropped, passedOver }: Readonly<Record<string, unknown>>): object => {
  return { requests, resends, dropped, passed_over: passedOver };
};

function figuresOf({ samples, figures, taken }: Service): object {
  const last = samples.at(-1);
  const oldest = samples.flatMap(({ oldestMs }) => (oldestMs === undefined ? [] : [oldestMs]));
  return {
    ids: taken,
    loop_delay_p99_ms: rounded(figures?.loopDelayP99Ms ?? Number.NaN),
    standstill_ms: Math.round(figures?.standstillMs ?? Number.NaN),
    heap_mb: megabytes(last?.heapBytes ?? Number.NaN),
    heap_growth_mb: megabytes(growth(samples, 'heapBytes')),
    rss_mb: megabytes(last?.rssBytes ?? Number.NaN),
    rss_growth_mb: megabytes(growth(samples, 'rssBytes')),
    rss_mb_per_minute: megabytes(slopePerMinute(samples, 'rssBytes')),
    oldest_buffered_s: oldest.length === 0 ? undefined : rounded(Math.max(...oldest) / 1_000),
    oldest_taken_s: rounded((figures?.oldestTakenMs ?? Number.NaN) / 1_000),
    retried: figures?.retried,
    ...countsOf(figures?.metrics ?? {}),
  };
}

function growthFindings({ plan, samples }: Service): string[] {
  const limits = { heapBytes: HEAP_GROWTH_BYTES, rssBytes: RSS_GROWTH_BYTES } as const;
  return (['heapBytes', 'rssBytes'] as const).flatMap((figure) => {
    const grown = growth(samples, figure);
    return grown > limits[figure]
      ? [`${plan.name}: ${figure} grew by ${megabytes(grown)} MB, more than ${megabytes(limits[figure])}`]
      : [];
  });
}

const keyOf = ({ service, call, code }: Failure): string => `${service}: ${call} ${code}`;

/** Failures that no rule allows, by what failed during which fault, each with one as an example. */
function unallowed(failures: readonly Failure[], played: readonly (Span & { readonly name: string })[]): string[] {
  const during = ({ fromMs, toMs }: Failure) => {
    const faults = played.filter((fault) => fault.fromMs <= toMs && fromMs <= fault.toMs).map(({ name }) => name);
    return faults.length === 0 ? 'between faults' : `while ${[...new Set(faults)].join(', and ')}`;
  };
  const groups = Map.groupBy(failures, (failure) => `${keyOf(failure)} ${during(failure)}`);
  return [...groups].map(([what, of]) => {
    const times = of.reduce((sum, failure) => sum + failure.times, 0);
    const [first] = of;
    const { fromMs = 0, toMs = 0, message = '' } = first ?? {};
    return `${what}, ${times} times; the first after ${toMs - fromMs} ms: ${message}`;
  });
}

export async function runSoak(options: SoakOptions): Promise<SoakReport> {
  const { servers, trace, seed, scale } = options;
  const findings: string[] = [];
  const runs = new IdRuns();
  await using stack = new AsyncDisposableStack();
  const realm = stack.use(await Realm.create(servers, { partitions: PARTITIONS }));
  const plans = plansOf(servers, realm, (name) => `${realm.env.REPLY_TOPIC_PREFIX}${name}`);
  for (const { name, client } of plans) {
    await realm.createTopic(client.replyTopic, { partitions: name === ASKING ? 12 : 2 });
  }
  const workers = Array.from({ length: WORKERS }, () => realm.worker(SHORT_SESSION));
  await Promise.all(workers.map((worker) => worker.ready()));
  const probes = new Probes(realm, await realm.follow(), PARTITIONS);
  stack.defer(() => probes.stop());
  const begunMs = performance.now();
  const services = plans.map((plan) => new Service(plan, runs, PARTITIONS));
  stack.defer(() => {
    for (const service of services) service.kill('SIGKILL');
  });
  await Promise.all([probes.answered(SERVED_AGAIN_MS), ...services.map((service) => service.ready())]);
  const rng = new Rng(seed + 1);
  const pick = <T>(from: readonly T[]): T => rng.pick(from);
  const scene = { servers, realm, partitions: PARTITIONS, workers, services, scale, pick };
  const played = await playFaults(scene, probes, options, findings);
  trace('the services end');
  const ends = await Promise.all(services.map(async (service) => ({ service, wrong: await service.end() })));
  for (const { service, wrong } of ends) if (wrong !== undefined) findings.push(`${service.plan.name}: ${wrong}`);
  await probes.stop();
  const darkness = probes.darkness(played.filter(({ name }) => name.includes('floods')));
  const judged = services.flatMap((service) =>
    service.failures.map((failure) => ({ failure, rule: allowedBy(failure, darkness, callerOf(service, played)) })),
  );
  findings.push(
    ...unallowed(
      judged.flatMap(({ failure, rule }) => (rule === undefined ? [failure] : [])),
      played,
    ),
  );
  if (runs.duplicates > 0) findings.push(`${runs.duplicates} IDs came twice: ${runs.examples.join('; ')}`);
  findings.push(...services.flatMap(growthFindings));
  const everMs = { fromMs: 0, toMs: Number.MAX_SAFE_INTEGER };
  const seconds = (spans: readonly Span[]) => Math.round(sharedMs(everMs, spans) / 1_000);
  return {
    seconds: Math.round((performance.now() - begunMs) / 1_000),
    faults: countBy(played.map(({ name }) => [name, 1])),
    ids: runs.ids,
    duplicates: runs.duplicates,
    calls: countBy(services.flatMap(({ figures }) => Object.entries(figures?.calls ?? {}))),
    failures: judged.reduce((sum, { failure }) => sum + failure.times, 0),
    allowed: countBy(
      judged.flatMap(({ failure, rule }) =>
        rule === undefined ? [] : [[`${keyOf(failure)}: ${rule}`, failure.times]],
      ),
    ),
    dark_s: [seconds(darkness.all), Math.max(0, ...darkness.partitions.map(seconds))],
    services: Object.fromEntries(services.map((service) => [service.plan.name, figuresOf(service)])),
    findings,
  };
}
