import { InvalidArgumentError } from 'commander';
import { ID_TEXT_HELP, readId } from '../codec/id-text.ts';

/** An ID of the command line, in any form that readId takes. */
export function parseId(text: string): bigint {
  const id = readId(text);
  if (id === undefined) throw new InvalidArgumentError(`must be ${ID_TEXT_HELP}.`);
  return id;
}
