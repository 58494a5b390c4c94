import { InvalidArgumentError } from 'commander';

/** Creates an option parser for whole numbers from `low` to `high`. */
export function wholeNumber(low: number, high: number): (text: string) => number {
  return (text) => {
    const value = /^[0-9]{1,16}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= low && value <= high) return value;
    throw new InvalidArgumentError(`must be a whole number from ${low} to ${high}.`);
  };
}
