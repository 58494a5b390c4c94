import { stringify } from 'yaml';
import { readRules } from '../../ops/prometheus/rules.ts';

/** The window of a rate must hold a few scrapes, and end soon after what it shows. */
export const HASTY_WINDOW = '20s';

/**
 * The rules, in haste: nothing has to last before it fires (`for`), and what is looked at is the last 20 s (`[5m]`,
 * `[1h]`). Conditions and thresholds stay. So an alert that is silent by these is silent by the real ones.
 */
export function hastyRules(): string {
  const { groups } = readRules();
  const inHaste = groups.map(({ name, rules }) => ({
    name,
    rules: rules.map(({ expr, ...rest }) => ({
      ...rest,
      ...('for' in rest ? { for: undefined } : {}),
      expr: expr.replaceAll(/\[\d+[mh](:1m)?\]/g, (_, steps) => `[${HASTY_WINDOW}${steps === undefined ? '' : ':1s'}]`),
    })),
  }));
  return stringify({ groups: inHaste });
}
