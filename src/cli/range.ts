import { Command } from 'commander';
import { FORMS } from '../codec/form/forms.ts';
import type { Environment } from '../config/parse.ts';
import { formatHex, type Layout, tickStartMs, toTicks } from '../core/layout.ts';
import { ticks, wallMs } from '../core/units.ts';
import { IdallocError } from '../errors.ts';
import { chosenLayout, formSettings, orUsageError, writerOf } from './chosen.ts';
import type { CliContext } from './context.ts';
import {
  type FormFlags,
  type JsonFlag,
  type LayoutOptions,
  TIME_HELP,
  timeReader,
  withFormOptions,
  withLayoutOptions,
} from './options.ts';
import { present, timeText } from './output.ts';

interface RangeOptions extends LayoutOptions, FormFlags, JsonFlag {
  readonly from: number;
  readonly to?: number;
}

/** The IDs of a span of time, of all workers. */
export interface IdSpan {
  readonly first: bigint;
  readonly last: bigint;
  /** The span that these IDs cover: whole ticks of the layout. */
  readonly fromMs: number;
  readonly toMs: number;
}

const EXAMPLES = `
The span begins with --from and ends before --to, so adjacent spans share no ID. A layout with a tick of more than
1 ms extends the span to whole ticks.
With --json, stdout has one line: {"layout","epoch_ms","from_ms","to_ms","first","last"}; IDs are strings.
--form also prints both IDs in a form that sorts as the IDs do, in JSON as "first_form" and "last_form".

Examples:
  idalloc range --from 2026-06-02 --to 2026-06-03
  idalloc range --from 2026-06-02T16:05:00Z --to 2026-06-02T18:06:00+02:00 --json
  idalloc range --from 2h --form uuid7
  idalloc range --from 2h --layout sonyflake`;

/** `idalloc range`: the IDs of a span of time, for `WHERE id BETWEEN`, without a server. */
export function rangeCommand({ out, env, now }: CliContext): Command {
  const parse = timeReader(now);
  const command = new Command('range')
    .description('Show the first and the last ID of a span of time, for WHERE id BETWEEN.')
    .requiredOption('--from <time>', `start of the span: ${TIME_HELP}`, parse)
    .option('--to <time>', 'end of the span, exclusive; same formats (default: now)', parse);
  return withLayoutOptions(withFormOptions(command, 'form in which both IDs are printed as well; it must sort'))
    .option('--json', 'print one line of JSON')
    .addHelpText('after', EXAMPLES)
    .action((options: RangeOptions) => {
      const layout = chosenLayout(options, env, command);
      const span = orUsageError(command, () => idSpan(layout, options.from, options.to ?? now()), '');
      const texts = orUsageError(command, () => formTexts(span, layout, options, env));
      present({ out }, options.json, viewSpan(layout, span, texts), () => spanText(span, texts));
    });
}

/**
 * The IDs of all times t with from <= t < to. Throws RangeError for a span that is empty, or outside the
 * layout's time; a span that is partly outside is cut.
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

/** Both IDs of a span in a form. */
interface SpanTexts {
  readonly first: string;
  readonly last: string;
  /** For a database. */
  readonly condition: string;
}

function formTexts(span: IdSpan, layout: Layout, { form, prefix }: FormFlags, env: Environment): SpanTexts | undefined {
  const write = writerOf(form, formSettings(layout, { prefix }, env));
  if (form === undefined || write === undefined) return undefined;
  const { sorts } = FORMS[form];
  if (sorts === 'no')
    throw new IdallocError('INVALID_ID', `form ${form} does not sort as the IDs do: it has no ranges`);
  const [first, last] = [write(span.first), write(span.last)];
  const quote = sorts === 'text' ? "'" : '';
  return { first, last, condition: `WHERE id BETWEEN ${quote}${first}${quote} AND ${quote}${last}${quote}` };
}

function viewSpan(layout: Layout, { first, last, fromMs, toMs }: IdSpan, texts: SpanTexts | undefined): object {
  return {
    layout: layout.name,
    epoch_ms: layout.epochMs,
    from_ms: fromMs,
    to_ms: toMs,
    first: String(first),
    last: String(last),
    first_form: texts?.first,
    last_form: texts?.last,
  };
}

function spanText({ first, last, fromMs, toMs }: IdSpan, texts: SpanTexts | undefined): string {
  return [
    `first  ${first}  0x${formatHex(first)}  ${timeText(fromMs)}`,
    `last   ${last}  0x${formatHex(last)}  before ${timeText(toMs)}`,
    texts?.condition ?? `WHERE id BETWEEN ${first} AND ${last}`,
    '',
  ].join('\n');
}
