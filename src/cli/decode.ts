import { Command } from 'commander';
import type { FormName } from '../codec/form/form.ts';
import { type ReadId, readIdText } from '../codec/id-text.ts';
import { type IdView, viewId } from '../codec/id-view.ts';
import type { Layout } from '../core/layout.ts';
import { chosenLayout, formSettings, orUsageError, SEE_LAYOUT, writerOf } from './chosen.ts';
import type { CliContext } from './context.ts';
import { drawBits, idTable } from './id-view.ts';
import {
  type FormFlags,
  formOption,
  ID_TEXTS,
  type JsonFlag,
  type LayoutOptions,
  withFormOptions,
  withLayoutOptions,
} from './options.ts';
import { present } from './output.ts';

interface DecodeOptions extends LayoutOptions, FormFlags, JsonFlag {
  readonly as?: FormName;
}

/** `form` is left out for decimal and hexadecimal. */
interface DecodedView extends IdView {
  readonly form?: FormName;
}

/** More drawings than this do not help. */
const MAX_DRAWN = 4;

const EXAMPLES = `
Without --form, the form of an ID is detected from its shape and check bits. A number is decimal unless it can also
be in another form; 16 hexadecimal digits with a letter or a leading zero are hexadecimal. uuid4 and number need FORM_KEY.
Up to ${MAX_DRAWN} IDs are drawn bit by bit below the table.

Examples:
  idalloc decode 55325805773398016
  idalloc decode 0x00c48e86f8092000 --json
  idalloc decode 019e8914-c3e0-7248-8001-24c006e36c27
  idalloc decode --form simpleflake 6990000000000000000
  idalloc decode --as ulid 55325805773398016
  idalloc decode --layout sonyflake 1 2 3
  idalloc decode --layout bwmarrin --epoch-ms 1767225600000 --worker-bits 8 --sequence-bits 14 4398046511104
  idalloc decode --layout baidu --epoch-ms 1767225600000 4398046511104`;

/** `idalloc decode`: splits IDs into their fields, without a server. */
export function decodeCommand({ out, env }: CliContext): Command {
  const command = new Command('decode')
    .description('Show the time, worker and other fields of IDs, bit by bit.')
    .argument('<id...>', ID_TEXTS);
  return withLayoutOptions(withFormOptions(command, 'form that the IDs are in (default: detected)'))
    .addOption(formOption('--as <name>', 'form in which the IDs are printed as well'))
    .option('--json', 'print one line of JSON: {"layout","epoch_ms","ids"}')
    .addHelpText('after', EXAMPLES)
    .action((texts: readonly string[], options: DecodeOptions) => {
      const layout = chosenLayout(options, env, command);
      const settings = formSettings(layout, options, env);
      const read = orUsageError(command, () => texts.map((text) => readIdText(text, options.form, settings)));
      const views = orUsageError(command, () => viewAll(read, layout, writerOf(options.as, settings)), SEE_LAYOUT);
      present({ out }, options.json, { layout: layout.name, epoch_ms: layout.epochMs, ids: views }, () => {
        const drawn = read.length > MAX_DRAWN ? [] : read.map(({ id }) => `\n${drawBits(layout, id)}`);
        return `${idTable(views)}${drawn.join('')}`;
      });
    });
}

/** Not every number is an ID of every layout: some bits must be 0, and timestamps are limited. */
function viewAll(read: readonly ReadId[], layout: Layout, write?: (id: bigint) => string): DecodedView[] {
  return read.map(({ id, form }) => {
    const view = viewId(layout, id, write);
    return form === 'decimal' || form === 'hex' ? view : { ...view, form };
  });
}
