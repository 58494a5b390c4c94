import type { ZodError } from 'zod';
import type { Secret } from '../core/secret.ts';
import { describeError, IdallocError } from '../errors.ts';
import { type CheckText, pemProblem, type ReadText, SecretFile, textOf } from './secret-file.ts';
import type { Values, Variable } from './variables.ts';

export type Environment = Readonly<Record<string, string | undefined>>;
export type Table = Readonly<Record<string, Variable<unknown>>>;

/** Where variables are read from, and where errors and secret files are collected. */
export interface VariableSource {
  readonly env: Environment;
  readonly readText: ReadText;
  readonly errors: ConfigErrors;
  readonly secretFiles: SecretFile[];
}

/** Collects configuration errors, so that all are reported together. */
export class ConfigErrors {
  readonly #lines: string[] = [];
  readonly #names = new Set<string>();

  add(name: string, problem: string): void {
    this.#names.add(name);
    this.#lines.push(`  ${name}: ${problem}`);
  }

  /** Whether an error of this variable was added. */
  has(name: string): boolean {
    return this.#names.has(name);
  }

  /** Runs a check across variables, unless one of them is invalid: its placeholder value would cause false errors. */
  ifValid(names: readonly string[], check: () => void): void {
    if (!names.some((name) => this.has(name))) check();
  }

  /** Adds an error when only one of two variables is set that need each other. */
  requireBothOrNeither(pair: Readonly<Record<string, unknown>>): void {
    const set = Object.keys(pair).find((name) => pair[name] !== undefined);
    const missing = Object.keys(pair).find((name) => pair[name] === undefined);
    if (set !== undefined && missing !== undefined) this.add(missing, `is required when ${set} is set`);
  }

  /** @throws IdallocError CONFIG_INVALID with one line per error. */
  throwIfAny(): void {
    const count = this.#lines.length;
    if (count === 0) return;
    const title = count === 1 ? '1 configuration error' : `${count} configuration errors`;
    throw new IdallocError('CONFIG_INVALID', `${title}:\n${this.#lines.join('\n')}`);
  }
}

/**
 * A value for each variable of the table. An empty variable counts as not set. An invalid one is reported and replaced
 * by its default or undefined, so that the others can be checked; the caller must not use the values after an error.
 */
export function parseTable<T extends Table>(table: T, source: VariableSource): Values<T> {
  const values: Record<string, unknown> = {};
  for (const [name, variable] of Object.entries(table)) {
    values[name] = variable.secret ? parseSecret(name, variable, source) : parsePlain(name, variable, source);
  }
  return values as Values<T>;
}

function parsePlain(name: string, variable: Variable<unknown>, { env, errors }: VariableSource): unknown {
  const text = env[name];
  const fallback = () => (variable.fallback === undefined ? undefined : variable.schema.parse(variable.fallback));
  if (text === undefined || text === '') {
    if (variable.required) errors.add(name, `is required: ${variable.meaning} [${variable.unit}]`);
    return fallback();
  }
  const result = variable.schema.safeParse(text);
  if (result.success) return result.data;
  errors.add(name, `${problemOf(result.error)}, not '${shown(text)}'`);
  return fallback();
}

/** Secrets are never required, have no default, and are never shown. */
function parseSecret(name: string, variable: Variable<unknown>, source: VariableSource): Secret | undefined {
  const { env, readText, errors, secretFiles } = source;
  const [direct = '', path = ''] = [env[name], env[`${name}_FILE`]];
  const check: CheckText = (text) => {
    if (text === '') return { problem: 'is empty' };
    const result = variable.schema.safeParse(text);
    return result.success ? { text } : { problem: problemOf(result.error) };
  };
  const found = (where: string, text: string): string | undefined => {
    const checked = check(text);
    if ('text' in checked) return checked.text;
    errors.add(where, checked.problem);
    return undefined;
  };
  if (path === '') {
    const text = direct === '' ? undefined : found(name, direct);
    return text === undefined ? undefined : () => text;
  }
  if (direct !== '') {
    errors.add(name, `is also set by ${name}_FILE: set only one of them`);
    return undefined;
  }
  try {
    const text = found(`${name}_FILE`, textOf(readText(path)));
    if (text === undefined) return undefined;
    const file = new SecretFile(`${name}_FILE`, path, text, readText, check);
    if (variable.unit === 'PEM') file.alsoCheck(pemProblem);
    secretFiles.push(file);
    return file.current;
  } catch (error) {
    errors.add(`${name}_FILE`, `cannot be read: ${describeError(error)}`);
    return undefined;
  }
}

function problemOf({ issues }: ZodError): string {
  return issues[0]?.message ?? 'is not valid';
}

/**
 * The beginning of an invalid value, without possible credentials: those before an @ or after a URL's question mark.
 */
function shown(text: string): string {
  const rest = text.slice(text.lastIndexOf('@') + 1);
  const open = text.includes('://') ? rest.replace(/\?.*/s, '?…') : rest;
  return `${rest === text ? '' : '…@'}${open}`.slice(0, 100);
}

/** Prefixes of our variables that few others have. */
const PREFIXES = /^(KAFKA|ETCD|API|OPS|INDEX)_/;
/** Kubernetes sets these for each service; Kafka's own scripts use the last two. */
const OF_OTHERS = /_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT(_\d+_\w+)?|OPTS)$|^KAFKA_HOME$/;
const MAX_EDITS = 2;
/** Kubernetes sets these for services with the usual names. */
const OF_KUBERNETES: ReadonlySet<string> = new Set(['KAFKA_PORT', 'ETCD_PORT']);
/** Below this length, two different letters make another word. */
const SHORTEST = 6;

/** A warning for each unknown variable whose name resembles one of the table or has one of our prefixes. */
export function misspelled(table: Table, env: Environment): string[] {
  const known = Object.entries(table).flatMap(([name, row]) => (row.secret ? [name, `${name}_FILE`] : [name]));
  const taken = new Set(known);
  return Object.keys(env)
    .filter((name) => !taken.has(name) && name.includes('_') && name.length <= 64 && !OF_KUBERNETES.has(name))
    .flatMap((name) => {
      const meant =
        known.find((other) => fewLettersOff(name, other)) ?? known.find((other) => fewWordsOff(name, other));
      if (meant !== undefined) return [`${name} is ignored: did you mean ${meant}?`];
      return PREFIXES.test(name) && !OF_OTHERS.test(name) ? [`${name} is ignored: idalloc has no such variable`] : [];
    });
}

function fewLettersOff(name: string, other: string): boolean {
  if (other.length < SHORTEST || name.length < SHORTEST) return false;
  return Math.abs(name.length - other.length) <= MAX_EDITS && edits(name, other) <= MAX_EDITS;
}

/** The same name with words added or missing at its end. */
function fewWordsOff(name: string, other: string): boolean {
  return other.startsWith(`${name}_`) || name.startsWith(`${other}_`);
}

/** Letters to insert, delete or change to get from one text to the other (Wagner and Fischer's table, two rows). */
function edits(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, index) => index);
  for (let i = 1; i <= from.length; i++) {
    const next = [i];
    for (let j = 1; j <= to.length; j++) {
      const change = (row[j - 1] ?? 0) + (from[i - 1] === to[j - 1] ? 0 : 1);
      next.push(Math.min(change, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[to.length] ?? 0;
}
