import { Command, InvalidArgumentError, Option } from 'commander';
import { type IdView, viewId } from '../codec/id-view.ts';
import { formatHex, type Layout } from '../core/layout.ts';
import { PRESETS, type PresetName, presetLayout } from '../core/presets.ts';
import { describeError, IdallocError } from '../errors.ts';
import type { CliContext } from './context.ts';
import { idTable } from './id-view.ts';

interface DecodeOptions {
  readonly layout: PresetName;
  readonly epochMs?: number;
  readonly json?: true;
}

const MAX_ID = 2n ** 64n - 1n;

const EXAMPLES = `
Examples:
  idalloc decode 55325805773398016
  idalloc decode 0x00c48e86f8092000 --json
  idalloc decode --layout sonyflake 1 2 3
  idalloc decode --layout baidu --epoch-ms 1767225600000 4398046511104`;

/** `idalloc decode`: takes IDs apart, without any server. */
export function decodeCommand({ out }: CliContext): Command {
  return new Command('decode')
    .description('Show when and by whom IDs were made.')
    .argument('<id...>', 'decimal, or hexadecimal after 0x', (text, before: bigint[] = []) => [
      ...before,
      parseId(text),
    ])
    .addOption(
      new Option('--layout <name>', 'layout that the IDs were made with')
        .choices(Object.keys(PRESETS))
        .default('default'),
    )
    .option('--epoch-ms <ms>', "the layout's epoch, in ms since 1970, where it is not the published one", parseEpoch)
    .option('--json', 'print one line of JSON: {"layout","epoch_ms","ids"}')
    .addHelpText('after', EXAMPLES)
    .action((ids: readonly bigint[], options: DecodeOptions, command: Command) => {
      const layout = layoutOf(options, command);
      const views = viewAll(ids, layout, command);
      if (options.json !== true) return out(idTable(views));
      out(`${JSON.stringify({ layout: layout.name, epoch_ms: layout.epochMs, ids: views })}\n`);
    });
}

/** An ID from [0, 2^64), as people and programs write it. */
function parseId(text: string): bigint {
  if (!/^([0-9]{1,20}|0x[0-9a-f]{1,16})$/i.test(text) || BigInt(text) > MAX_ID) {
    throw new InvalidArgumentError(
      `must be decimal from 0 to ${MAX_ID}, or 0x and at most ${formatHex(0n).length} hexadecimal digits.`,
    );
  }
  return BigInt(text);
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

function parseEpoch(text: string): number {
  if (!/^[0-9]{1,15}$/.test(text)) throw new InvalidArgumentError('must be whole milliseconds since 1970.');
  return Number(text);
}

function layoutOf({ layout, epochMs }: DecodeOptions, command: Command): Layout {
  try {
    return presetLayout(layout, epochMs === undefined ? {} : { epochMs });
  } catch (error) {
    if (!(error instanceof IdallocError)) throw error;
    return command.error(`error: ${describeError(error)}; see --epoch-ms`);
  }
}
