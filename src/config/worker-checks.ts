import type { EtcdTls } from '../adapters/etcd/member.ts';
import { MAX_POOL } from '../codec/namespace-values.ts';
import { type Layout, tickStartMs } from '../core/layout.ts';
import { chooseLayout, type LayoutChoice } from '../core/layout-choice.ts';
import { type PresetProblem, presetLayout } from '../core/presets.ts';
import { checkTiming, type LeaseTiming, timingFor } from '../core/reservation.ts';
import type { Secret } from '../core/secret.ts';
import { ConfigErrors, type Environment, parseTable } from './parse.ts';
import { LAYOUT_VARIABLES, type LayoutValues, WORKER_VARIABLES, type WorkerValues } from './variables.ts';

const DEFAULT_POOL = 32;

/**
 * Required where the layout has a datacenter field: with a default, two clusters that forgot to set it would generate
 * the same IDs.
 */
export function datacenterOf(values: WorkerValues, layout: Layout, errors: ConfigErrors): number {
  const datacenterId = values.DATACENTER_ID;
  errors.ifValid([...LAYOUT_NAMED, 'DATACENTER_ID'], () => {
    const range = `from 0 to ${layout.maxDatacenter} in layout '${layout.name}'`;
    if (datacenterId === undefined) {
      if (layout.maxDatacenter > 0) errors.add('DATACENTER_ID', `is required: ${range}, unique to each namespace`);
    } else if (datacenterId > layout.maxDatacenter) {
      errors.add('DATACENTER_ID', `must be ${range}, not ${datacenterId}`);
    }
  });
  return datacenterId ?? 0;
}

/** The pool: the configured range, or up to 32 worker IDs from POOL_FIRST on. It must contain WORKER_ID. */
export function poolOf(values: WorkerValues, layout: Layout, errors: ConfigErrors): { first: number; last: number } {
  const first = values.POOL_FIRST ?? 0;
  const last = values.POOL_LAST ?? Math.min(layout.maxWorker, first + DEFAULT_POOL - 1);
  errors.ifValid([...LAYOUT_NAMED, 'POOL_FIRST', 'POOL_LAST'], () => {
    if (first > layout.maxWorker) errors.add('POOL_FIRST', `must be at most ${layout.maxWorker}, not ${first}`);
    else if (last > layout.maxWorker) errors.add('POOL_LAST', `must be at most ${layout.maxWorker}, not ${last}`);
    else if (last < first) errors.add('POOL_LAST', `must not be below POOL_FIRST ${first}, but is ${last}`);
    else if (last - first >= MAX_POOL) errors.add('POOL_LAST', `gives the pool more than ${MAX_POOL} worker IDs`);
  });
  errors.ifValid([...LAYOUT_NAMED, 'POOL_FIRST', 'POOL_LAST', 'WORKER_ID'], () => {
    const id = values.WORKER_ID;
    if (id === undefined || (id >= first && id <= last)) return;
    errors.add('WORKER_ID', `must be in the pool, from ${first} to ${last}, not ${id}`);
  });
  return { first, last };
}

/** The variable of each time of the lease. */
const LEASE_VARIABLES = {
  ttlMs: 'LEASE_TTL_SECONDS',
  heartbeatMs: 'LEASE_HEARTBEAT_MS',
  refuseAfterMs: 'ETCD_REFUSE_AFTER_MS',
  reserveMs: 'RESERVATION_MS',
  marginMs: 'LEASE_MARGIN_MS',
} as const satisfies Record<keyof LeaseTiming, keyof WorkerValues>;

/**
 * The timing of the lease. What is not set follows from the time to live. The times depend on each other, so an error
 * names all variables of the rule, with their values.
 */
export function timingOf(values: WorkerValues, layout: Layout, errors: ConfigErrors): LeaseTiming {
  const derived = timingFor(values.LEASE_TTL_SECONDS * 1_000);
  const timing: LeaseTiming = {
    ttlMs: derived.ttlMs,
    heartbeatMs: values.LEASE_HEARTBEAT_MS ?? derived.heartbeatMs,
    refuseAfterMs: values.ETCD_REFUSE_AFTER_MS ?? derived.refuseAfterMs,
    reserveMs: values.RESERVATION_MS ?? derived.reserveMs,
    marginMs: values.LEASE_MARGIN_MS ?? derived.marginMs,
  };
  const named = (field: keyof LeaseTiming): string => {
    const name = LEASE_VARIABLES[field];
    return `${name} (${values[name] ?? timing[field]} ${WORKER_VARIABLES[name].unit})`;
  };
  const names = Object.values(LEASE_VARIABLES);
  errors.ifValid(names, () => {
    for (const { field, problem } of checkTiming(timing, named)) errors.add(LEASE_VARIABLES[field], problem);
  });
  // A ceiling is rounded down to a whole tick, and must last until the next heartbeat raises it.
  errors.ifValid([...names, ...LAYOUT_NAMED], () => {
    const least = timing.heartbeatMs + layout.tickMs;
    if (timing.reserveMs >= least) return;
    const what = `${named('heartbeatMs')} plus a tick of layout '${layout.name}' (${layout.tickMs} ms)`;
    errors.add('RESERVATION_MS', `must be at least ${what}, not ${timing.reserveMs} ms`);
  });
  return timing;
}

/** Maximum count of one request, capped by the layout's. */
export function maxCountOf(values: WorkerValues, layout: Layout, errors: ConfigErrors): number {
  const count = values.MAX_COUNT;
  errors.ifValid([...LAYOUT_NAMED, 'MAX_COUNT'], () => {
    if (count === undefined || count <= layout.maxCount) return;
    errors.add('MAX_COUNT', `must be at most ${layout.maxCount} in layout '${layout.name}', not ${count}`);
  });
  return Math.min(count ?? layout.maxCount, layout.maxCount);
}

export function etcdAuthOf(
  values: WorkerValues,
  errors: ConfigErrors,
): { username: string; password: Secret } | undefined {
  const { ETCD_USERNAME: username, ETCD_PASSWORD: password } = values;
  errors.ifValid(['ETCD_USERNAME', 'ETCD_PASSWORD', 'ETCD_PASSWORD_FILE'], () =>
    errors.requireBothOrNeither({ ETCD_USERNAME: username, ETCD_PASSWORD: password }),
  );
  return username === undefined || password === undefined ? undefined : { username, password };
}

/** TLS settings for etcd; undefined when none is set. */
export function etcdTlsOf(values: WorkerValues, errors: ConfigErrors): EtcdTls | undefined {
  const { ETCD_CA: ca, ETCD_CERT: cert, ETCD_KEY: key, ETCD_ENDPOINTS: endpoints } = values;
  const names = ['ETCD_CA', 'ETCD_CERT', 'ETCD_KEY'].flatMap((name) => [name, `${name}_FILE`]);
  errors.ifValid(names, () => errors.requireBothOrNeither({ ETCD_CERT: cert, ETCD_KEY: key }));
  const isUsed = [ca, cert, key].some((one) => one !== undefined);
  errors.ifValid([...names, 'ETCD_ENDPOINTS'], () => {
    const isPlain = isUsed && endpoints.some((endpoint) => !endpoint.startsWith('https://'));
    if (isPlain) errors.add('ETCD_ENDPOINTS', 'must all start with https:// when ETCD_CA or ETCD_CERT is set');
  });
  if (!isUsed) return undefined;
  return { ca, clientCertificate: cert && key && { cert, key } };
}

/** The variable for each property of a layout. */
export const LAYOUT_VARIABLE_OF = {
  name: 'LAYOUT',
  fields: 'LAYOUT_FIELDS',
  tickMs: 'LAYOUT_TICK_MS',
  epochMs: 'LAYOUT_EPOCH_MS',
  sequenceStartBelow: 'LAYOUT_SEQUENCE_START_BELOW',
  // These have no variable: errors in them are reported for LAYOUT.
  workerBits: 'LAYOUT',
  sequenceBits: 'LAYOUT',
} as const satisfies Record<PresetProblem['property'], keyof LayoutValues>;

/**
 * The variables that define the layout: while one of them is invalid, nothing that depends on the layout is checked.
 */
const LAYOUT_NAMED: readonly string[] = Object.keys(LAYOUT_VARIABLES);

const YEAR_MS = 365.2425 * 86_400_000;

/** The configured layout; after an error, the default layout as a placeholder. */
export function layoutOf(values: LayoutValues, errors: ConfigErrors): Layout {
  const chosen = chooseLayout(choiceOf(values));
  if ('layout' in chosen) return chosen.layout;
  errors.ifValid(['LAYOUT'], () => {
    const all = chosen.problems.map(({ property, problem }) => [LAYOUT_VARIABLE_OF[property], problem] as const);
    // A variable that could not be parsed is reported already; its placeholder value must not be checked.
    const own = all.filter(([name]) => !errors.has(name));
    for (const [name, problem] of own) errors.add(name, problem);
  });
  return presetLayout('default');
}

/** The layout variables of the environment; no others are checked. Throws CONFIG_INVALID. */
export function layoutChoiceOf(env: Environment): LayoutChoice {
  const errors = new ConfigErrors();
  const readText = () => '';
  const values = parseTable(LAYOUT_VARIABLES, { env, readText, errors, secretFiles: [] });
  errors.throwIfAny();
  return choiceOf(values);
}

/**
 * A layout whose configured epoch leaves no IDs for the current time is an error, since the worker would only wait; one
 * that ends within a year is a warning. Published epochs are not checked: a clock that is off by decades is the clock
 * guard's concern.
 */
export function lifetimeWarnings(
  layout: Layout,
  env: Environment,
  nowMs: number,
  errors: ConfigErrors,
): readonly string[] {
  const warnings: string[] = [];
  if ((env.LAYOUT_EPOCH_MS ?? '') === '') return warnings;
  errors.ifValid(LAYOUT_NAMED, () => {
    const [begin, end, now] = [layout.epochMs, tickStartMs(layout, layout.endTicks), nowMs].map(isoText);
    if (nowMs < layout.epochMs) {
      errors.add('LAYOUT_EPOCH_MS', `is ${begin}, in the future (it is ${now}): set an earlier one`);
    } else if (nowMs >= tickStartMs(layout, layout.endTicks)) {
      const more = layout.name === 'custom' ? ', or more bits for the timestamp in LAYOUT_FIELDS' : '';
      errors.add(
        'LAYOUT_EPOCH_MS',
        `makes layout '${layout.name}' end at ${end}, in the past (it is ${now}): set a later one${more}`,
      );
    } else if (nowMs + YEAR_MS > tickStartMs(layout, layout.endTicks)) {
      warnings.push(`layout '${layout.name}' runs out of IDs at ${end}: see 'idalloc layout'`);
    }
  });
  return warnings;
}

function choiceOf(values: LayoutValues): LayoutChoice {
  return {
    name: values.LAYOUT,
    fields: values.LAYOUT_FIELDS,
    tickMs: values.LAYOUT_TICK_MS,
    epochMs: values.LAYOUT_EPOCH_MS,
    sequenceStartBelow: values.LAYOUT_SEQUENCE_START_BELOW,
  };
}

function isoText(ms: number): string {
  return new Date(ms).toISOString();
}
