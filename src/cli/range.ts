import { Command } from 'commander';
import { formatHex, type Layout, tickStartMs, toTicks } from '../core/layout.ts';
import { ticks, wallMs } from '../core/units.ts';
import type { CliContext } from './context.ts';
import { type LayoutOptions, layoutOf, withLayoutOptions } from './layout-options.ts';
import { timeText } from './table.ts';
import { TIME_HELP, timeReader } from './times.ts';

interface RangeOptions extends LayoutOptions {
  readonly from: number;
  readonly to: number;
  readonly json?: true;
}

/** The IDs of a span of time: no ID of it lies outside, whoever made it. */
export interface IdSpan {
  readonly first: bigint;
  readonly last: bigint;
  /** The span that these IDs cover: whole ticks of the layout. */
  readonly fromMs: number;
  readonly toMs: number;
}

const EXAMPLES = `
The span begins with --from and ends before --to, so that spans that meet share no ID. A layout with a tick of more than
1 ms gives the whole ticks that the span touches.
With --json, stdout has one line: {"layout","epoch_ms","from_ms","to_ms","first","last"}; IDs are strings.

Examples:
  idalloc range --from 2026-06-02 --to 2026-06-03
  idalloc range --from 2026-06-02T16:05:00Z --to 2026-06-02T18:06:00+02:00 --json
  idalloc range --from 2h --to now --layout sonyflake`;

/** `idalloc range`: the IDs of a span of time, for `WHERE id BETWEEN`; without any server. */
export function rangeCommand({ out, env, now }: CliContext): Command {
  const parse = timeReader(now);
  const command = new Command('range')
    .description('Show the first and the last ID of a span of time, for WHERE id BETWEEN.')
    .requiredOption('--from <time>', TIME_HELP, parse)
    .requiredOption('--to <time>', 'the same', parse);
  return withLayoutOptions(command)
    .option('--json', 'print one line of JSON')
    .addHelpText('after', EXAMPLES)
    .action((options: RangeOptions) => {
      const layout = layoutOf(options, env, command);
      const span = spanOf(layout, options, command);
      out(options.json === true ? `${JSON.stringify(viewSpan(layout, span))}\n` : spanText(span));
    });
}

/**
 * The IDs of all times t with from <= t < to. RangeError for a span that is empty, or wholly outside of the layout's
 * time; one that reaches beyond it is cut.
 */
export function idSpan(layout: Layout, fromMs: number, toMs: number): IdSpan {
  if (!(fromMs < toMs)) throw new RangeError(`the span is empty: ${timeText(fromMs)} is not before ${timeText(toMs)}`);
  const begin = Math.max(0, toTicks(layout, wallMs(fromMs)));
  const end = Math.min(layout.endTicks, toTicks(layout, wallMs(toMs - 1)) + 1);
  if (begin >= end) {
    const times = `${timeText(layout.epochMs)} to ${timeText(tickStartMs(layout, layout.endTicks))}`;
    throw new RangeError(`layout '${layout.name}' has IDs for times from ${times} only`);
  }
  return {
    first: BigInt(begin) << layout.timestampShift,
    last: (BigInt(end) << layout.timestampShift) - 1n,
    fromMs: tickStartMs(layout, ticks(begin)),
    toMs: tickStartMs(layout, ticks(end)),
  };
}

function spanOf(layout: Layout, { from, to }: RangeOptions, command: Command): IdSpan {
  try {
    return idSpan(layout, from, to);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    return command.error(`error: ${error.message}`);
  }
}

function viewSpan(layout: Layout, { first, last, fromMs, toMs }: IdSpan): object {
  return {
    layout: layout.name,
    epoch_ms: layout.epochMs,
    from_ms: fromMs,
    to_ms: toMs,
    first: String(first),
    last: String(last),
  };
}

function spanText({ first, last, fromMs, toMs }: IdSpan): string {
  return [
    `first  ${first}  0x${formatHex(first)}  ${timeText(fromMs)}`,
    `last   ${last}  0x${formatHex(last)}  before ${timeText(toMs)}`,
    `WHERE id BETWEEN ${first} AND ${last}`,
    '',
  ].join('\n');
}
