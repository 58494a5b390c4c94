import { defineLayout, type Layout, layoutText } from './layout.ts';
import { CUSTOM, parseLayoutText } from './layout-text.ts';
import { PRESETS, type PresetName, presetLayout } from './presets.ts';

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
