import { IdallocError } from '../errors.ts';
import {
  defineLayout,
  type FieldRole,
  type FieldSpec,
  type Layout,
  type LayoutSpec,
  layoutProblems,
} from './layout.ts';

export type PresetName =
  | 'default'
  | 'js-safe'
  | 'twitter-2010'
  | 'bwmarrin'
  | 'sonyflake'
  | 'instagram'
  | 'discord'
  | 'region'
  | 'baidu';

/** A published layout; `epochMs` is missing where the published epoch has run out. */
export interface Preset {
  readonly fields: readonly FieldSpec[];
  readonly tickMs: number;
  readonly epochMs?: number;
  readonly sequenceStartBelow: number;
}

export interface PresetOverrides {
  /** Milliseconds since 1970, for any preset; all workers of a namespace must use the same. */
  readonly epochMs?: number | undefined;
  /** bwmarrin only. */
  readonly workerBits?: number | undefined;
  /** bwmarrin only. */
  readonly sequenceBits?: number | undefined;
}

/** A problem with one property of a layout, worded to follow the property's name. */
export interface PresetProblem {
  readonly property: keyof LayoutSpec | 'workerBits' | 'sequenceBits';
  readonly problem: string;
}

const IDALLOC_EPOCH_MS = Date.UTC(2026, 0, 1);
const TWITTER_EPOCH_MS = 1_288_834_974_657;
const SONYFLAKE_EPOCH_MS = Date.UTC(2014, 8, 1);
const INSTAGRAM_EPOCH_MS = 1_314_220_021_721;
const DISCORD_EPOCH_MS = 1_420_070_400_000;

const field = (role: FieldRole, bits: number, label: string = role): FieldSpec => ({ role, bits, label });
const timestamp = (bits: number): FieldSpec => field('timestamp', bits);
const sequence = (bits: number): FieldSpec => field('sequence', bits);

/** All named layouts; published ones with the field names of their source. */
export const PRESETS: Readonly<Record<PresetName, Preset>> = Object.freeze({
  default: preset(IDALLOC_EPOCH_MS, [timestamp(41), field('datacenter', 5), field('worker', 5), sequence(12)]),
  // 53 bits: the most that a JavaScript number, or any other double, holds exactly.
  'js-safe': preset(IDALLOC_EPOCH_MS, [timestamp(41), field('worker', 5), sequence(7)]),
  'twitter-2010': preset(TWITTER_EPOCH_MS, [timestamp(41), field('datacenter', 5), field('worker', 5), sequence(12)]),
  bwmarrin: preset(TWITTER_EPOCH_MS, bwmarrinFields(10, 12)),
  // The machine lies below the sequence, so neighbouring IDs of one worker are 2^16 apart.
  sonyflake: preset(SONYFLAKE_EPOCH_MS, [timestamp(39), sequence(8), field('worker', 16, 'machine')], { tickMs: 10 }),
  instagram: preset(INSTAGRAM_EPOCH_MS, [timestamp(41), field('worker', 13, 'shard'), sequence(10)]),
  // Discord's worker is configured here as the datacenter; its process is leased.
  discord: preset(DISCORD_EPOCH_MS, [
    timestamp(42),
    field('datacenter', 5, 'worker'),
    field('worker', 5, 'process'),
    sequence(12),
  ]),
  // A random start spreads the last digit, for users who shard by it.
  region: preset(
    TWITTER_EPOCH_MS,
    [timestamp(41), field('datacenter', 3, 'region'), field('worker', 10), sequence(10)],
    {
      sequenceStartBelow: 10,
    },
  ),
  // 28 bits of seconds last 8.5 years; the published epoch ran out in November 2024.
  baidu: preset(undefined, [timestamp(28), field('worker', 22), sequence(13)], { tickMs: 1000 }),
});

/**
 * The layout of a preset, with overrides of its epoch or, for bwmarrin, its bits.
 *
 * @throws IdallocError CONFIG_INVALID with all problems, such as baidu without an epoch.
 */
export function presetLayout(name: PresetName, overrides: PresetOverrides = {}): Layout {
  if (!Object.hasOwn(PRESETS, name)) {
    throw new IdallocError('CONFIG_INVALID', `unknown layout '${name}': use ${Object.keys(PRESETS).join(', ')}`);
  }
  const { spec, problems } = presetSpec(name, overrides);
  if (problems.length === 0) return defineLayout(spec);
  const text = problems.map(({ property, problem }) => `${property} ${problem}`).join('; ');
  throw new IdallocError('CONFIG_INVALID', `layout '${name}': ${text}`);
}

/** The spec of a preset with its overrides, and all their problems. */
export function presetSpec(
  name: PresetName,
  { epochMs, workerBits, sequenceBits }: PresetOverrides,
): { readonly spec: LayoutSpec; readonly problems: readonly PresetProblem[] } {
  const { tickMs, sequenceStartBelow, fields: published, epochMs: publishedEpochMs } = PRESETS[name];
  const problems: PresetProblem[] = [];
  const isGiven = workerBits !== undefined || sequenceBits !== undefined;
  const changed = workerBits === undefined ? 'sequenceBits' : 'workerBits';
  const isOwn = name === 'bwmarrin' && isGiven;
  const fields = isOwn ? bwmarrinFields(workerBits ?? 10, sequenceBits ?? 12) : published;
  if (isOwn)
    problems.push(...bwmarrinProblems(fields).map((problem): PresetProblem => ({ property: changed, problem })));
  else if (isGiven)
    problems.push({ property: changed, problem: `is for layout bwmarrin only; '${name}' has its own bits` });
  const epoch = epochMs ?? publishedEpochMs;
  if (epoch === undefined) {
    problems.push({
      property: 'epochMs',
      problem: `is required for layout '${name}', because the published epoch has run out`,
    });
  }
  const spec = { name, fields, tickMs, epochMs: epoch ?? 0, sequenceStartBelow };
  // Only overridden bits can make the fields of a preset invalid.
  const own = layoutProblems(spec).map(
    ({ property, problem }): PresetProblem => ({ property: property === 'fields' ? changed : property, problem }),
  );
  return { spec, problems: [...problems, ...own] };
}

function preset(
  epochMs: number | undefined,
  fields: readonly FieldSpec[],
  { tickMs = 1, sequenceStartBelow = 1 }: { tickMs?: number; sequenceStartBelow?: number } = {},
): Preset {
  return Object.freeze({ fields, tickMs, sequenceStartBelow, ...(epochMs === undefined ? {} : { epochMs }) });
}

/** bwmarrin's node and step share 22 bits; the timestamp gets the rest, which only changes its end. */
function bwmarrinFields(workerBits: number, sequenceBits: number): readonly FieldSpec[] {
  const timestampBits = Math.min(48, 63 - workerBits - sequenceBits);
  return [timestamp(timestampBits), field('worker', workerBits, 'node'), field('sequence', sequenceBits, 'step')];
}

function bwmarrinProblems(fields: readonly FieldSpec[]): string[] {
  const shared = fields.slice(1).reduce((sum, { bits }) => sum + bits, 0);
  return shared > 22 ? [`makes node and step take ${shared} bits, more than the 22 that they share`] : [];
}
