import { parseArgs } from 'node:util';

/** The default of an option, which has its type; several numbers are written with commas. */
type Default = number | string | boolean | readonly number[];
type Read<T> = T extends number ? number : T extends boolean ? boolean : T extends string ? string : readonly number[];
type Options<T> = { readonly [K in keyof T]: Read<T[K]> } & { readonly json: boolean };

/**
 * The options of a benchmark; each has --json and --help besides. `notes`: what the help says of an option. Ends the
 * process after the help with 0; and with 2 for an option that there is not, and for what is no number.
 */
export function optionsOf<T extends Readonly<Record<string, Default>>>(
  command: string,
  about: readonly string[],
  defaults: T,
  notes: { readonly [K in keyof T]?: string } = {},
): Options<T> {
  const all: Readonly<Record<string, Default>> = { ...defaults, json: false };
  const given = givenOf({ ...all, help: false });
  if (given.help === true) {
    const lines = Object.entries(all).map(([name, value]) => {
      const option = typeof value === 'boolean' ? name : `${name} ${value}`.trimEnd();
      return `  --${option}${notes[name] === undefined ? '' : `: ${notes[name]}`}`;
    });
    process.stdout.write(
      [...about, `npm run ${command} -- with options, here with their defaults:`, ...lines, ''].join('\n'),
    );
    process.exit(0);
  }
  return Object.fromEntries(
    Object.entries(all).map(([name, value]) => [name, readAs(value, name, given[name])]),
  ) as Options<T>;
}

function givenOf(all: Readonly<Record<string, Default>>): Readonly<Record<string, unknown>> {
  const options = Object.entries(all).map(([name, value]) =>
    typeof value === 'boolean'
      ? ([name, { type: 'boolean', default: value }] as const)
      : ([name, { type: 'string', default: String(value) }] as const),
  );
  try {
    return parseArgs({ options: Object.fromEntries(options) }).values;
  } catch (error) {
    return refuse(error instanceof Error ? error.message : String(error));
  }
}

function readAs(value: Default, name: string, given: unknown): unknown {
  if (typeof value === 'boolean' || typeof value === 'string') return given;
  const numbers = String(given).split(',').map(Number);
  const isOne = typeof value === 'number';
  if (numbers.some(Number.isNaN) || (isOne && numbers.length > 1))
    return refuse(`--${name} takes ${isOne ? 'a number' : 'numbers with commas between them'}, not '${given}'`);
  return isOne ? numbers[0] : numbers;
}

/** Ends the process, since its arguments are wrong. */
export function refuse(why: string): never {
  process.stderr.write(`${why}\n`);
  process.exit(2);
}
