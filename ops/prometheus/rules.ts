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

interface RuleFile {
  readonly groups: readonly { readonly name: string; readonly rules: readonly Rule[] }[];
}

export function readRules(): RuleFile {
  return parse(readFileSync(RULES_FILE, 'utf8')) as RuleFile;
}

/** The alerts of all groups, in order. */
export const ALERTS: readonly Rule[] = readRules().groups.flatMap(({ rules }) => rules);
