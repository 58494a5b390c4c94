import { Command } from 'commander';
import { type IdView, viewId } from '../codec/id-view.ts';
import type { Layout } from '../core/layout.ts';
import { drawBits } from './bits.ts';
import type { CliContext } from './context.ts';
import { parseId } from './id-text.ts';
import { idTable } from './id-view.ts';
import { type LayoutOptions, layoutOf, withLayoutOptions } from './layout-options.ts';

interface DecodeOptions extends LayoutOptions {
  readonly json?: true;
}

/** More drawings than this are no help. */
const MAX_DRAWN = 4;

const EXAMPLES = `
Up to ${MAX_DRAWN} IDs are drawn bit by bit below the table.

Examples:
  idalloc decode 55325805773398016
  idalloc decode 0x00c48e86f8092000 --json
  idalloc decode --layout sonyflake 1 2 3
  idalloc decode --layout bwmarrin --epoch-ms 1767225600000 --worker-bits 8 --sequence-bits 14 4398046511104
  idalloc decode --layout baidu --epoch-ms 1767225600000 4398046511104`;

/** `idalloc decode`: takes IDs apart, without any server. */
export function decodeCommand({ out, env }: CliContext): Command {
  const command = new Command('decode')
    .description('Show when and by whom IDs were made, bit by bit.')
    .argument('<id...>', 'decimal, or hexadecimal: 16 digits, or after 0x', (text, before: bigint[] = []) => [
      ...before,
      parseId(text),
    ]);
  return withLayoutOptions(command)
    .option('--json', 'print one line of JSON: {"layout","epoch_ms","ids"}')
    .addHelpText('after', EXAMPLES)
    .action((ids: readonly bigint[], options: DecodeOptions) => {
      const layout = layoutOf(options, env, command);
      const views = viewAll(ids, layout, command);
      if (options.json === true) {
        return out(`${JSON.stringify({ layout: layout.name, epoch_ms: layout.epochMs, ids: views })}\n`);
      }
      const drawn = ids.length > MAX_DRAWN ? [] : ids.map((id) => `\n${drawBits(layout, id)}`);
      out(`${idTable(views)}${drawn.join('')}`);
    });
}

/** Not every number is an ID of every layout: some bits must be 0, and times have an end. */
function viewAll(ids: readonly bigint[], layout: Layout, command: Command): IdView[] {
  try {
    return ids.map((id) => viewId(layout, id));
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return command.error(`error: ${error.message}; see --layout`);
  }
}
