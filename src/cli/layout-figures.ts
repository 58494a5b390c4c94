import { MAX_POOL } from '../codec/descriptor.ts';
import { findLayout } from '../core/find-layout.ts';
import { type Layout, tickStartMs } from '../core/layout.ts';
import { fieldsText } from '../core/layout-text.ts';
import { PRESETS, type PresetName } from '../core/presets.ts';

const YEAR_MS = 365.2425 * 86_400_000;

/** The capacity and limits of a layout, under the names of --json. */
export interface LayoutFigures {
  readonly layout: string;
  readonly fields: string;
  readonly bits: number;
  readonly tick_ms: number;
  /** Null for a published layout whose own epoch has run out, until another epoch is chosen. */
  readonly epoch_ms: number | null;
  readonly sequence_start_below: number;
  /** The first moment without an ID. */
  readonly ends_ms: number | null;
  readonly lasts_years: number;
  readonly years_left: number | null;
  /** The minimum that a worker can sustain. */
  readonly ids_per_second: number;
  readonly workers: number;
  readonly datacenters: number;
  /** The figures of the largest pool that a namespace may have in this layout. */
  readonly pool: { readonly workers: number; readonly ids_per_second: number };
  readonly max_count: number;
  readonly step: number;
  readonly fits_number: boolean;
  readonly fingerprint: string | null;
}

/** The figures of a layout at a time. `hasEpoch` is false when the layout's epoch is a placeholder for one to be chosen. */
export function figuresOf(layout: Layout, nowMs: number, hasEpoch = true): LayoutFigures {
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
    epoch_ms: hasEpoch ? epochMs : null,
    sequence_start_below: sequenceStartBelow,
    ends_ms: hasEpoch ? endsMs : null,
    lasts_years: oneDecimal((endsMs - epochMs) / YEAR_MS),
    years_left: hasEpoch ? oneDecimal((endsMs - nowMs) / YEAR_MS) : null,
    ids_per_second: perSecond,
    workers,
    datacenters: layout.maxDatacenter + 1,
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
