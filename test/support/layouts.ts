import { loadEtcdConfig } from '../../src/config/config.ts';
import type { Layout } from '../../src/core/layout.ts';

type Env = Readonly<Record<string, string>>;

/**
 * Layouts that tests run workers in, by name. The custom ones were chosen with `idalloc layout`:
 *
 * regional  139 years of milliseconds for 1,024 workers in each of 4 regions; region and worker are below the sequence,
 *           like the machine in sonyflake, so that consecutive IDs of a worker are 4,096 apart
 * seconds   53-bit numbers for 64 workers and 136 years, ordered by whole seconds only. The random start varies the
 *           last digit
 */
export const LAYOUT_ENVS = {
  default: {},
  'js-safe': { LAYOUT: 'js-safe', DATACENTER_ID: '0' },
  regional: {
    LAYOUT: 'custom',
    LAYOUT_FIELDS: 'timestamp:42,sequence:9,datacenter:2:region,worker:10',
    LAYOUT_EPOCH_MS: '1767225600000',
    DATACENTER_ID: '2',
  },
  seconds: {
    LAYOUT: 'custom',
    LAYOUT_FIELDS: 'timestamp:32,worker:6,sequence:15',
    LAYOUT_TICK_MS: '1000',
    LAYOUT_EPOCH_MS: '1767225600000',
    LAYOUT_SEQUENCE_START_BELOW: '10',
    DATACENTER_ID: '0',
  },
} as const satisfies Record<string, Env>;

export type TestLayout = keyof typeof LAYOUT_ENVS;

/** The layout of a worker with these variables. */
export function layoutOfEnv(env: Env): Layout {
  return loadEtcdConfig(env).layout;
}
