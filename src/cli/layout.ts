import { Argument, Command } from 'commander';
import { MAX_POOL } from '../codec/namespace-values.ts';
import { compose, fieldsText, type Layout, tickStartMs, toTicks } from '../core/layout.ts';
import { findLayout, LAYOUT_NAMES, type LayoutName } from '../core/layout-choice.ts';
import { PRESETS, type PresetName, presetLayout } from '../core/presets.ts';
import { ticks, wallMs } from '../core/units.ts';
import { chosenLayout } from './chosen.ts';
import { type CliContext, EXIT } from './context.ts';
import { drawBits } from './id-view.ts';
import { type JsonFlag, type LayoutOptions, withFieldOptions } from './options.ts';
import { present, table, timeText } from './output.ts';
import { palette } from './terminal.ts';

type Options = Omit<LayoutOptions, 'layout'> & JsonFlag;

const DAY_MS = 86_400_000;
/** A namespace never changes its layout, and most outlive ten years. */
const SHORT_YEARS = 10;

const EXAMPLES = `
Without a name or --fields, all presets are listed. A layout without an epoch is shown as if it began today, at 0:00 UTC.
With --json, stdout has one line: {"layouts":[…]}, or the figures of the one layout. The exit code is 1 for a layout that
can't allocate IDs now: it has ended, or begins later.

Examples:
  idalloc layout
  idalloc layout js-safe
  idalloc layout baidu --epoch-ms 1767225600000
  idalloc layout --fields timestamp:42,worker:8,sequence:13
  idalloc layout --fields timestamp:32,datacenter:4:region,worker:12,sequence:15 --tick-ms 1000 --json`;

/** `idalloc layout`: shows the capacity and limits of layouts, without a server. */
export function layoutCommand(context: CliContext): Command {
  const command = new Command('layout')
    .description('List the layouts, or show one: its bits, its end, how many IDs and workers it has.')
    .addArgument(new Argument('[name]', 'a preset, or custom').choices(LAYOUT_NAMES));
  return withFieldOptions(command)
    .option('--json', 'print one line of JSON')
    .addHelpText('after', EXAMPLES)
    .action((name: LayoutName | undefined, options: Options) => {
      const { json, ...given } = options;
      if (name === undefined && Object.keys(given).length === 0) return list(context, json);
      const today = Math.floor(context.now() / DAY_MS) * DAY_MS;
      const chosen = name === undefined ? given : { ...given, layout: name };
      show(context, chosenLayout(chosen, context.env, command, today), json);
    });
}

function list(context: CliContext, json?: true): void {
  const layouts = (Object.keys(PRESETS) as PresetName[]).map((name) => {
    const hasEpoch = PRESETS[name].epochMs !== undefined;
    return figuresOf(presetLayout(name, { epochMs: hasEpoch ? undefined : 0 }), context.now(), hasEpoch);
  });
  present(context, json, { layouts }, () => `${table(COLUMNS, layouts.map(row))}\n${LEGEND}`);
}

const COLUMNS = [
  ...['layout', 'bits', '>tick', 'epoch', 'ends', '>IDs/s of a worker', '>workers', '>datacenters', '>largest batch'],
  'JS number',
];
const LEGEND = `t: timestamp, d: datacenter, w: worker, s: sequence, from the highest bits to the lowest
'idalloc layout NAME' draws one; LAYOUT=custom takes your own fields: see --help
`;

function row(figures: LayoutFigures): string[] {
  const { epoch_ms: epochMs, ends_ms: endsMs, lasts_years: years } = figures;
  return [
    figures.layout,
    figures.fields.replace(/([a-z])[a-z]*:(\d+)(:[^,]*)?,?/g, '$2$1 ').trim(),
    `${figures.tick_ms} ms`,
    epochMs === null ? 'LAYOUT_EPOCH_MS' : day(epochMs),
    endsMs === null ? `${years} years later` : day(endsMs),
    grouped(figures.ids_per_second),
    grouped(figures.workers),
    grouped(figures.datacenters),
    grouped(figures.max_count),
    figures.fits_number ? 'yes' : 'no',
  ];
}

function show(context: CliContext, layout: Layout, json?: true): void {
  const figures = figuresOf(layout, context.now());
  const { warning, usable } = judge(layout, figures, context.now());
  if (!usable) context.setExitCode(EXIT.failed);
  const settings = settingsOf(layout);
  present(context, json, { ...figures, settings }, () => {
    const paint = palette(context);
    const notice = warning === undefined ? '' : `\n${(usable ? paint.yellow : paint.red)(warning)}\n`;
    const facts = factsText(layout, figures, settings);
    return `${drawBits(layout, example(layout, context.now()))}\n${facts}${notice}`;
  });
}

/**
 * An ID of the current time, or of the layout's first tick if it has none now. The highest worker ID makes that field
 * visible.
 */
function example(layout: Layout, nowMs: number): bigint {
  const now = toTicks(layout, wallMs(nowMs));
  const at = now >= 0 && now < layout.endTicks ? now : ticks(0);
  return compose(layout, { ticks: at, datacenter: 0, worker: layout.maxWorker, sequence: 0 });
}

function factsText(layout: Layout, figures: LayoutFigures, settings: string): string {
  const { pool, workers, datacenters, tick_ms: tickMs } = figures;
  const below = layout.fields.slice(1).map(({ label }) => label);
  const numbers = figures.fits_number
    ? 'JavaScript numbers hold the IDs'
    : 'more than the 53 that JavaScript numbers hold';
  const others = datacenters === 1 ? 'no datacenter field' : `in each of ${datacenters} datacenters`;
  const facts = {
    layout: layout.name,
    fields: figures.fields,
    bits: `${figures.bits}: ${numbers}`,
    tick: `${tickMs} ms`,
    epoch: timeText(layout.epochMs),
    ends: `${timeText(figures.ends_ms ?? 0)}: ${figures.lasts_years} years in total, ${figures.years_left} left`,
    'IDs/s': `${grouped(figures.ids_per_second)} per worker, ${grouped(pool.ids_per_second)} per pool of ${grouped(pool.workers)}`,
    workers: `${grouped(workers)}, ${others}`,
    batch: `${grouped(figures.max_count)} IDs at most`,
    step: `${grouped(figures.step)} from one ID of a worker to its next in a tick`,
    order: `by time, to ${tickMs} ms; within a tick by ${below.join(', ')}. The IDs of one worker always increase`,
    set: settings,
  };
  return Object.entries(facts)
    .map(([name, fact]) => `${name.padEnd(8)} ${fact}\n`)
    .join('');
}

/** Whether the layout can allocate IDs now, and a warning about choosing it. */
function judge(
  layout: Layout,
  { years_left: yearsLeft }: LayoutFigures,
  nowMs: number,
): { readonly usable: boolean; readonly warning?: string } {
  if (nowMs < layout.epochMs) return { usable: false, warning: "begins later: IDs can't have times before the epoch" };
  const left = yearsLeft ?? 0;
  if (left <= 0)
    return { usable: false, warning: 'has ended: choose a later epoch, more timestamp bits or a longer tick' };
  if (left >= SHORT_YEARS) return { usable: true };
  return {
    usable: true,
    warning: `ends in ${left} years, and a namespace can't change its layout: more timestamp bits or a longer tick last longer`,
  };
}

function day(ms: number): string {
  return timeText(ms).slice(0, 10);
}

function grouped(count: number): string {
  return count.toLocaleString('en-US');
}

const YEAR_MS = 365.2425 * 86_400_000;

/** The capacity and limits of a layout, under the names of --json. */
type LayoutFigures = ReturnType<typeof figuresOf>;

/**
 * The figures of a layout at a time. `hasEpoch` is false when the layout's epoch is a placeholder for one to be chosen.
 */
export function figuresOf(layout: Layout, nowMs: number, hasEpoch = true) {
  const { tickMs, epochMs, sequencesPerTick, sequenceStartBelow } = layout;
  const endsMs = tickStartMs(layout, layout.endTicks);
  const perSecond = Math.floor((1_000 * (sequencesPerTick - sequenceStartBelow + 1)) / tickMs);
  const workers = layout.maxWorker + 1;
  const pool = Math.min(workers, MAX_POOL);
  return {
    layout: layout.name,
    fields: fieldsText(layout.fields),
    bits: layout.fields.reduce((sum, { bits }) => sum + bits, 0),
    tick_ms: tickMs,
    /** Null for a published layout whose own epoch has run out, until another epoch is chosen. */
    epoch_ms: hasEpoch ? epochMs : null,
    sequence_start_below: sequenceStartBelow,
    /** The first moment without an ID. */
    ends_ms: hasEpoch ? endsMs : null,
    lasts_years: oneDecimal((endsMs - epochMs) / YEAR_MS),
    years_left: hasEpoch ? oneDecimal((endsMs - nowMs) / YEAR_MS) : null,
    /** The minimum that a worker can sustain. */
    ids_per_second: perSecond,
    workers,
    datacenters: layout.maxDatacenter + 1,
    /** The figures of the largest pool that a namespace may have in this layout. */
    pool: { workers: pool, ids_per_second: pool * perSecond },
    max_count: layout.maxCount,
    step: Number(layout.step),
    fits_number: layout.fitsNumber,
    fingerprint: hasEpoch ? layout.fingerprint : null,
  };
}

/** The variables that give workers this layout. */
export function settingsOf(layout: Layout): string {
  const { epochMs, tickMs, sequenceStartBelow, fingerprint: layoutFingerprint } = layout;
  const preset = findLayout({ epochMs, layoutFingerprint })?.name as PresetName | undefined;
  if (preset !== undefined) {
    // Two presets may differ in their epochs only: the name that was chosen is the better one.
    const name = Object.hasOwn(PRESETS, layout.name) ? (layout.name as PresetName) : preset;
    return PRESETS[name].epochMs === epochMs ? `LAYOUT=${name}` : `LAYOUT=${name} LAYOUT_EPOCH_MS=${epochMs}`;
  }
  return [
    `LAYOUT=custom LAYOUT_FIELDS=${fieldsText(layout.fields)}`,
    ...(tickMs === 1 ? [] : [`LAYOUT_TICK_MS=${tickMs}`]),
    `LAYOUT_EPOCH_MS=${epochMs}`,
    ...(sequenceStartBelow === 1 ? [] : [`LAYOUT_SEQUENCE_START_BELOW=${sequenceStartBelow}`]),
  ].join(' ');
}

/** Below a year, two decimals: a layout that ends within weeks does not show 0. */
function oneDecimal(years: number): number {
  return Math.abs(years) < 1 ? Math.round(years * 100) / 100 : Math.round(years * 10) / 10;
}
