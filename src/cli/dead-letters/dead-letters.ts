import { Command, InvalidArgumentError, Option } from 'commander';
import { RESENT } from '../../codec/dead-letter.ts';
import { ORIGIN } from '../../codec/request-headers.ts';
import { ERRORS, type ErrorCode } from '../../errors.ts';
import type { CliContext } from '../context.ts';
import { type ConfirmFlags, type JsonFlag, wholeNumber } from '../options.ts';
import type { LetterListOptions, LetterLocation } from './dead-letters-run.ts';

/** The codes of dead letters. */
const LETTER_CODES = (Object.keys(ERRORS) as ErrorCode[]).filter((code) => ERRORS[code].deadLetter);

const LIST_HELP = `
Examples:
  idalloc deadletters list
  idalloc deadletters list --code REPLY_UNDELIVERABLE --limit 1000 --json`;

const SHOW_HELP = `
Examples:
  idalloc deadletters show 0:17
  idalloc deadletters show 0:17 --json`;

const RESEND_HELP = `
Each record goes back to the request partition that it came from, with its key, value and headers, a header '${ORIGIN}'
with its first place and time, and a header '${RESENT}' that counts resends. A record can be resent three times.
The letter stays in the dead-letter topic. A letter for a range of records has none of them: they are read in the request topic, and
stderr says how many retention has deleted there.
A request that is itself invalid comes back; one whose reply topic was missing is served once the topic exists.

Examples:
  idalloc deadletters resend 0:17 0:18
  idalloc deadletters resend 0:17 --yes --json`;

/** `idalloc deadletters`: requests that could not be served. */
export function deadLettersCommand(context: CliContext): Command {
  const list = new Command('list')
    .description('List the newest dead letters.')
    .option('--limit <n>', 'most dead letters to list, newest first', wholeNumber(1, 100_000), 100)
    .addOption(new Option('--code <code>', 'only dead letters with this code').choices(LETTER_CODES))
    .option('--json', 'print one line of JSON: {"letters":[…]}')
    .addHelpText('after', LIST_HELP)
    .action(async (options: LetterListOptions) =>
      (await import('./dead-letters-run.ts')).listLetters(context, options),
    );
  const show = new Command('show')
    .description('Show one dead letter in full.')
    .argument('<partition:offset>', 'place of the letter, as listed', parsePlace)
    .option('--json', 'print one line of JSON, with the bytes in base64')
    .addHelpText('after', SHOW_HELP)
    .action(async (location: LetterLocation, flags: JsonFlag) =>
      (await import('./dead-letters-run.ts')).showLetter(context, location, flags),
    );
  const resend = new Command('resend')
    .description('Send the records of dead letters to the request topic again.')
    .argument(
      '<partition:offset...>',
      'place of the letter, as listed',
      (text, before: readonly LetterLocation[] = []) => withLocation(before, parsePlace(text)),
    )
    .option('--yes', 'do not ask for confirmation')
    .option(
      '--json',
      'print one line of JSON: {"resent":[{"letter","partition","offset"}],"unsent":[{"letter","records","why"}]}',
    )
    .addHelpText('after', RESEND_HELP)
    .action(async (locations: readonly LetterLocation[], options: ConfirmFlags) =>
      (await import('./dead-letters-run.ts')).runResend(context, locations, options),
    );
  const command = new Command('deadletters').description(
    'List and show requests that could not be served, and send them again.',
  );
  return command.addCommand(list).addCommand(show).addCommand(resend);
}

/** A letter that is named twice is sent once. */
function withLocation(before: readonly LetterLocation[], location: LetterLocation): readonly LetterLocation[] {
  const known = before.some(({ partition, offset }) => partition === location.partition && offset === location.offset);
  return known ? before : [...before, location];
}

function parsePlace(text: string): LetterLocation {
  const [, partition, offset] = /^([0-9]{1,9}):([0-9]{1,15})$/.exec(text) ?? [];
  if (partition === undefined || offset === undefined) {
    throw new InvalidArgumentError('must be a partition and an offset, as 0:17.');
  }
  return { partition: Number(partition), offset: Number(offset) };
}
