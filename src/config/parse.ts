import { describeError, IdallocError } from '../errors.ts';
import type { Variable } from './variables.ts';

export type Environment = Readonly<Record<string, string | undefined>>;
export type ReadText = (path: string) => string;
export type Table = Readonly<Record<string, Variable<unknown>>>;
type Values<T> = { readonly [Name in keyof T]: T[Name] extends Variable<infer Value> ? Value : never };

/** Collects every fault, so that one start tells them all. */
export class Faults {
  readonly #lines: string[] = [];
  readonly #names = new Set<string>();

  add(name: string, problem: string): void {
    this.#names.add(name);
    this.#lines.push(`  ${name}: ${problem}`);
  }

  /** Runs a check across variables, unless one of them is faulty by itself: its stand-in would raise false alarms. */
  across(names: readonly string[], check: () => void): void {
    if (!names.some((name) => this.#names.has(name))) check();
  }

  /** @throws IdallocError CONFIG_INVALID with one line for each fault. */
  throwIfAny(): void {
    const count = this.#lines.length;
    if (count === 0) return;
    const title = count === 1 ? '1 fault' : `${count} faults`;
    throw new IdallocError('CONFIG_INVALID', `${title} in the configuration:\n${this.#lines.join('\n')}`);
  }
}

/**
 * A value for each variable of the table. An empty variable counts as not set. A faulty one is told, and its default
 * stands in (or nothing, where it has none), so that the rest can be looked at; the caller must not use the values
 * when there was a fault.
 */
export function parseTable<T extends Table>(table: T, env: Environment, readText: ReadText, faults: Faults): Values<T> {
  const values: Record<string, unknown> = {};
  for (const [name, variable] of Object.entries(table)) {
    values[name] = parseVariable(name, variable, textOf(name, variable, env, readText, faults), faults);
  }
  return values as Values<T>;
}

function parseVariable(name: string, variable: Variable<unknown>, text: string | undefined, faults: Faults): unknown {
  const fallback = () => (variable.fallback === undefined ? undefined : variable.schema.parse(variable.fallback));
  if (text === undefined) {
    if (variable.required) faults.add(name, `is required: ${variable.meaning} [${variable.unit}]`);
    return fallback();
  }
  const result = variable.schema.safeParse(text);
  if (result.success) return result.data;
  const problem = result.error.issues[0]?.message ?? 'is not valid';
  faults.add(name, variable.secret ? problem : `${problem}, not '${text.slice(0, 100)}'`);
  return fallback();
}

function textOf(
  name: string,
  variable: Variable<unknown>,
  env: Environment,
  readText: ReadText,
  faults: Faults,
): string | undefined {
  const direct = env[name] === '' ? undefined : env[name];
  const path = variable.secret ? env[`${name}_FILE`] : undefined;
  if (path === undefined || path === '') return direct;
  if (direct !== undefined) {
    faults.add(name, `is given twice, here and by ${name}_FILE: keep one`);
    return undefined;
  }
  try {
    const text = readText(path).replace(/\r?\n$/, '');
    if (text === '') faults.add(`${name}_FILE`, `the file ${path} is empty`);
    return text === '' ? undefined : text;
  } catch (error) {
    faults.add(`${name}_FILE`, `can not be read: ${describeError(error)}`);
    return undefined;
  }
}

const MAX_EDITS = 2;
/** Among shorter names two letters off is another word. */
const SHORTEST = 6;

/** One warning for each variable of the environment that is unknown, but close to one of the table. */
export function misspelled(table: Table, env: Environment): string[] {
  const known = Object.entries(table).flatMap(([name, row]) => (row.secret ? [name, `${name}_FILE`] : [name]));
  const taken = new Set(known);
  return Object.keys(env)
    .filter((name) => !taken.has(name) && name.includes('_') && name.length <= 64)
    .flatMap((name) => {
      const meant =
        known.find((other) => fewLettersOff(name, other)) ?? known.find((other) => fewWordsOff(name, other));
      return meant === undefined ? [] : [`${name} is not read: is ${meant} meant?`];
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
