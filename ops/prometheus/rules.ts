import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'yaml';

/** The file that operators load. */
export const RULES_FILE = join(import.meta.dirname, 'rules.yml');

export interface Rule {
  readonly alert: string;
  readonly expr: string;
  /** How long the expression must hold: Prometheus' duration. Absent: it fires at once. */
  readonly for?: string;
  readonly labels: { readonly severity: string };
  readonly annotations: { readonly summary: string; readonly runbook_url: string };
}

/** A series that Prometheus computes for other rules. */
interface Recording {
  readonly record: string;
  readonly expr: string;
}

interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly (Rule | Recording)[] }[];
}

export function readRules(): RuleFile {
  return parse(readFileSync(RULES_FILE, 'utf8')) as RuleFile;
}

const RULES = readRules().groups.flatMap(({ rules }) => rules);

/** The alerts of all groups, in order. */
export const ALERTS: readonly Rule[] = RULES.filter((rule) => 'alert' in rule);

/** What alerts are computed from. */
export const RECORDINGS: readonly Recording[] = RULES.filter((rule) => 'record' in rule);
