import { IdallocError } from '../errors.ts';
import {
  CUSTOM,
  defineLayout,
  type FieldSpec,
  type Layout,
  layoutProblems,
  layoutText,
  parseFields,
  parseLayoutText,
} from './layout.ts';
import {
  PRESETS,
  type PresetName,
  type PresetOverrides,
  type PresetProblem,
  presetLayout,
  presetSpec,
} from './presets.ts';

/** A preset's name, or `custom` for a layout whose fields are declared. */
export type LayoutName = PresetName | typeof CUSTOM;

export const LAYOUT_NAMES: readonly LayoutName[] = [...(Object.keys(PRESETS) as PresetName[]), CUSTOM];

/** The definition of a custom layout. */
export interface CustomLayout {
  /** From the highest bits to the lowest, as a list or as a text such as `timestamp:41,worker:10:shard,sequence:12`. */
  readonly fields: readonly FieldSpec[] | string;
  /** Start of tick 0 in milliseconds since 1970. */
  readonly epochMs: number;
  /** Default 1. */
  readonly tickMs?: number;
  /** Each tick's first sequence number is random in [0, sequenceStartBelow); default 1: always 0. */
  readonly sequenceStartBelow?: number;
}

/** A layout as configured; chooseLayout checks which properties are allowed for the name. */
export interface LayoutChoice extends PresetOverrides {
  readonly name: LayoutName;
  readonly fields?: readonly FieldSpec[] | undefined;
  readonly tickMs?: number | undefined;
  readonly sequenceStartBelow?: number | undefined;
}

/** The layout, or all problems of the choice. */
export type Chosen = { readonly layout: Layout } | { readonly problems: readonly PresetProblem[] };

/** The chosen layout, or all problems of the choice. */
export function chooseLayout(choice: LayoutChoice): Chosen {
  const { spec, problems } = choice.name === CUSTOM ? customSpec(choice) : presetChoice(choice.name, choice);
  return problems.length > 0 ? { problems } : { layout: defineLayout(spec) };
}

/**
 * A custom layout.
 *
 * @throws IdallocError CONFIG_INVALID with all problems.
 */
export function customLayout({ fields, ...rest }: CustomLayout): Layout {
  return defineLayout({
    name: CUSTOM,
    fields: typeof fields === 'string' ? fieldsOf(fields) : fields,
    tickMs: rest.tickMs ?? 1,
    epochMs: rest.epochMs,
    sequenceStartBelow: rest.sequenceStartBelow ?? 1,
  });
}

function fieldsOf(text: string): readonly FieldSpec[] {
  try {
    return parseFields(text);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new IdallocError('CONFIG_INVALID', `fields ${error.message}`, { cause: error });
  }
}

function presetChoice(name: PresetName, choice: LayoutChoice): ReturnType<typeof presetSpec> {
  const { spec, problems } = presetSpec(name, choice);
  const own = (['fields', 'tickMs', 'sequenceStartBelow'] as const).filter(
    (property) => choice[property] !== undefined,
  );
  const problem = `is for layout '${CUSTOM}' only: '${name}' has its own`;
  return { spec, problems: [...own.map((property) => ({ property, problem })), ...problems] };
}

function customSpec(choice: LayoutChoice): ReturnType<typeof presetSpec> {
  const { name, fields, tickMs = 1, epochMs, sequenceStartBelow = 1 } = choice;
  const problems: PresetProblem[] = [];
  if (fields === undefined) problems.push({ property: 'fields', problem: `is required for layout '${CUSTOM}'` });
  if (epochMs === undefined) problems.push({ property: 'epochMs', problem: `is required for layout '${CUSTOM}'` });
  for (const part of ['workerBits', 'sequenceBits'] as const) {
    if (choice[part] !== undefined) problems.push({ property: part, problem: 'is for layout bwmarrin only' });
  }
  const spec = { name, fields: fields ?? [], tickMs, epochMs: epochMs ?? 0, sequenceStartBelow };
  // Missing properties are reported already; problems of their placeholders would not help.
  const all = layoutProblems(spec).filter(({ property }) => fields !== undefined || property === 'tickMs');
  return { spec, problems: [...problems, ...all] };
}

/** How a batch or a namespace identifies the layout of its IDs. */
export interface LayoutReference {
  readonly epochMs: number;
  /** 16 lowercase hex digits. */
  readonly layoutFingerprint: string;
}

/** No configuration has a later epoch; a forged one must not cost more than this comparison. */
const MAX_EPOCH_MS = 2 ** 48;
/** Bounds the memory against forged batches. */
const MAX_KNOWN = 1_000;

/**
 * The layout with this fingerprint: a preset with this epoch, or the layout described by `text` (see `layoutText`).
 * Undefined when neither has the fingerprint, so that no ID is ever decoded by another layout.
 */
export function findLayout({ epochMs, layoutFingerprint }: LayoutReference, text?: string): Layout | undefined {
  if (!Number.isSafeInteger(epochMs) || epochMs < 0 || epochMs > MAX_EPOCH_MS) return undefined;
  const fits = (layout: Layout | undefined) =>
    layout?.fingerprint === layoutFingerprint && layout.epochMs === epochMs ? layout : undefined;
  const names = Object.keys(PRESETS) as PresetName[];
  // Presets differ by their epochs alone, too: the one that was published with this epoch has its name.
  const published = names.filter((name) => PRESETS[name].epochMs === epochMs);
  for (const name of [...published, ...names]) {
    const found = fits(presetLayout(name, { epochMs }));
    if (found !== undefined) return found;
  }
  return text === undefined ? undefined : fits(readLayout(text));
}

/** A layout as messages name it. */
export function layoutTitle(reference: LayoutReference): string {
  const { layoutFingerprint, epochMs } = reference;
  return `${findLayout(reference)?.name ?? CUSTOM} (epoch ${epochMs}, fingerprint ${layoutFingerprint})`;
}

/** A caching findLayout, for readers of many batches. */
export function layoutFinder(): typeof findLayout {
  const known = new Map<string, Layout | undefined>();
  return (reference, text) => {
    const name = `${reference.layoutFingerprint}/${reference.epochMs}/${text ?? ''}`;
    if (known.has(name)) return known.get(name);
    const layout = findLayout(reference, text);
    if (known.size < MAX_KNOWN) known.set(name, layout);
    return layout;
  };
}

/** The text that readers need to find the layout; undefined for a preset, which they know. */
export function customText(layout: Layout): string | undefined {
  const { epochMs, fingerprint: layoutFingerprint } = layout;
  return findLayout({ epochMs, layoutFingerprint }) === undefined ? layoutText(layout) : undefined;
}

function readLayout(text: string): Layout | undefined {
  try {
    return defineLayout(parseLayoutText(text));
  } catch {
    return undefined; // invalid for any reason
  }
}
