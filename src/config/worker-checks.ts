import { MAX_POOL } from '../codec/namespace-values.ts';
import type { Layout } from '../core/layout.ts';
import { checkTiming, type LeaseTiming } from '../core/reservation.ts';
import { LAYOUT_NAMED } from './layout-checks.ts';
import type { ConfigErrors } from './parse.ts';
import { WORKER_VARIABLES, type WorkerValues } from './variables.ts';

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
 * The timing of the lease. The times depend on each other, so an error names all variables of the rule, with their
 * values.
 */
export function timingOf(values: WorkerValues, layout: Layout, errors: ConfigErrors): LeaseTiming {
  const timing: LeaseTiming = {
    ttlMs: values.LEASE_TTL_SECONDS * 1_000,
    heartbeatMs: values.LEASE_HEARTBEAT_MS,
    refuseAfterMs: values.ETCD_REFUSE_AFTER_MS,
    reserveMs: values.RESERVATION_MS,
    marginMs: values.LEASE_MARGIN_MS,
  };
  const named = (field: keyof LeaseTiming): string => {
    const name = LEASE_VARIABLES[field];
    return `${name} (${values[name]} ${WORKER_VARIABLES[name].unit})`;
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
