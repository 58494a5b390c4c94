import { z } from 'zod';
import type { Secret } from '../core/secret.ts';
import { describeError } from '../errors.ts';

/** A configuration variable: its meaning, its valid values, and how its text becomes a value. */
export interface Variable<T> {
  readonly schema: z.ZodType<T>;
  readonly unit: string;
  /** The default, as text; without it, an unset variable is undefined. */
  readonly fallback?: string;
  readonly required: boolean;
  /** A secret can also be set as a file by NAME_FILE, which is read again for each use. It is never printed. */
  readonly secret: boolean;
  readonly meaning: string;
}

export interface SecretVariable extends Variable<string> {
  readonly secret: true;
}

export const withDefault = <T>(schema: z.ZodType<T>, unit: string, fallback: string, meaning: string): Variable<T> => {
  return { schema, unit, fallback, required: false, secret: false, meaning };
};
export const required = <T>(schema: z.ZodType<T>, unit: string, meaning: string): Variable<T> => {
  return { schema, unit, required: true, secret: false, meaning };
};
export const optional = <T>(schema: z.ZodType<T>, unit: string, meaning: string): Variable<T | undefined> => {
  return { schema, unit, required: false, secret: false, meaning };
};
export const secret = (meaning: string): SecretVariable => {
  return { schema: z.string().max(4_096, 'is longer than 4096'), unit: 'text', required: false, secret: true, meaning };
};

export const pem = (meaning: string): SecretVariable => {
  const schema = z
    .string()
    .max(1_048_576, 'is longer than 1 MiB')
    .regex(/-----BEGIN [A-Z0-9 ]+-----/, 'must be PEM text; to name a file, set the variable that ends in _FILE');
  return { schema, unit: 'PEM', required: false, secret: true, meaning };
};

/** A text of many lines, usually in a file. `parse` throws RangeError for an invalid one. */
export const lines = (unit: string, parse: (text: string) => unknown, meaning: string): SecretVariable => {
  const schema = z
    .string()
    .max(1_048_576, 'is longer than 1 MiB')
    .superRefine((text, context) => {
      try {
        parse(text);
      } catch (error) {
        context.addIssue(describeError(error));
      }
    });
  return { schema, unit, required: false, secret: true, meaning };
};

/** The parsed values of a table. */
export type Values<Table> = {
  readonly [Name in keyof Table]: Table[Name] extends SecretVariable
    ? Secret | undefined
    : Table[Name] extends Variable<infer Value>
      ? Value
      : never;
};

/** The table as text: name, default, meaning and unit, one variable per line. */
export function describeTable(table: Readonly<Record<string, Variable<unknown>>>): string {
  const rows = Object.entries(table).map(([key, row]) => {
    const standard = row.required ? '(required)' : row.fallback === undefined ? '(unset)' : row.fallback;
    return [row.secret ? `${key}[_FILE]` : key, standard, row.secret ? row.meaning : `${row.meaning} [${row.unit}]`];
  });
  const width = (column: number) => Math.max(...rows.map((row) => row[column]?.length ?? 0));
  return rows
    .map(([key = '', standard = '', meaning]) => `  ${key.padEnd(width(0))}  ${standard.padEnd(width(1))}  ${meaning}`)
    .join('\n');
}
