import { stringify } from 'yaml';
import { ALERTS, readRules } from '../../ops/prometheus/rules.ts';

/** The window of a rate must hold a few scrapes, and end soon after what it shows. */
const HASTY_WINDOW = '20s';

export const LASTING = 'Lasting';
/** Each firing alert that goes on for a minute, which no rule waits less than. */
const LASTING_RULE = {
  alert: LASTING,
  expr: `label_replace(ALERTS{alertstate="firing",alertname!="${LASTING}"}, "of", "$1", "alertname", "(.*)")`,
  for: '1m',
};
/**
 * The alerts that fire at once, but for those that a stall of the machine fires in haste: of budgets, whose long
 * windows are what haste takes away, and of the ceiling, which a worker raises late and shows late then.
 */
const AT_ONCE = ALERTS.filter((rule) => rule.for === undefined && !/:ratio_rate|_ceiling_margin_/.test(rule.expr));

/**
 * Matches what a person would be notified of. The rest ends within a minute: a stall of the machine, in which scrapes
 * and answers are late, and what it leaves in the windows of haste.
 */
export const NOTIFIED = `alertname=~"${[LASTING, ...AT_ONCE.map(({ alert }) => alert)].join('|')}"`;

/** The windows of a rule, in haste. Three starts of a worker may take longer than that: their window stays. */
function inHaste(expr: string): string {
  if (expr.startsWith('changes(')) return expr;
  return expr.replaceAll(/\[\d+[mh](:1m)?\]/g, (_, steps) => `[${HASTY_WINDOW}${steps === undefined ? '' : ':1s'}]`);
}

/**
 * The rules, in haste: nothing has to last before it fires (`for`), and what is looked at is the last 20 s (`[5m]`,
 * `[1h]`). Conditions and thresholds stay. So an alert that is silent by these is silent by the real ones.
 */
export function hastyRules(): string {
  const { groups } = readRules();
  const hasty = groups.map(({ name, rules }) => ({
    name,
    rules: rules.map(({ expr, ...rest }) => ({
      ...rest,
      ...('for' in rest ? { for: undefined } : {}),
      expr: inHaste(expr),
    })),
  }));
  return stringify({ groups: [...hasty, { name: 'lasting', rules: [LASTING_RULE] }] });
}
