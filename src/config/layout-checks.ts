import { type Layout, tickStartMs } from '../core/layout.ts';
import { chooseLayout, type LayoutChoice } from '../core/layout-choice.ts';
import { presetLayout, type SpecFault } from '../core/presets.ts';
import { type Environment, Faults, parseTable } from './parse.ts';
import { LAYOUT_VARIABLES, type LayoutValues } from './variables.ts';

/** The variable for each property that a layout is made from. */
export const LAYOUT_VARIABLE_OF = {
  name: 'LAYOUT',
  fields: 'LAYOUT_FIELDS',
  tickMs: 'LAYOUT_TICK_MS',
  epochMs: 'LAYOUT_EPOCH_MS',
  sequenceStartBelow: 'LAYOUT_SEQUENCE_START_BELOW',
  // Without a variable of their own: what is wrong with them is wrong with the layout.
  workerBits: 'LAYOUT',
  sequenceBits: 'LAYOUT',
} as const satisfies Record<SpecFault['of'], keyof LayoutValues>;

/** The variables that make the layout: with one of them faulty, nothing that follows from the layout is worth a check. */
export const LAYOUT_NAMED: readonly string[] = Object.keys(LAYOUT_VARIABLES);

const YEAR_MS = 365.2425 * 86_400_000;

/** The layout that the variables ask for; after a fault the default stands in. */
export function layoutOf(values: LayoutValues, faults: Faults): Layout {
  const chosen = chooseLayout(choiceOf(values));
  if ('layout' in chosen) return chosen.layout;
  faults.across(['LAYOUT'], () => {
    const told = chosen.faults.map(({ of, problem }) => [LAYOUT_VARIABLE_OF[of], problem] as const);
    // One that could not be read has been told, and its stand-in is nothing to judge.
    const own = told.filter(([name]) => !faults.has(name));
    for (const [name, problem] of own) faults.add(name, problem);
  });
  return presetLayout('default');
}

/** What the environment says of the layout, where it says so; nothing else of it has to be right. Throws CONFIG_INVALID. */
export function layoutChoiceOf(env: Environment): LayoutChoice {
  const faults = new Faults();
  const readText = () => '';
  const values = parseTable(LAYOUT_VARIABLES, { env, readText, faults, secretFiles: [] });
  faults.throwIfAny();
  return choiceOf(values);
}

/**
 * A layout of a chosen epoch that gives no IDs now is a fault, since the worker would only wait; one that ends within a year
 * is a warning. The published epochs are known to be good, and a clock that is off by decades is for the clock guard.
 */
export function lifetimeWarnings(layout: Layout, env: Environment, nowMs: number, faults: Faults): readonly string[] {
  const warnings: string[] = [];
  if ((env.LAYOUT_EPOCH_MS ?? '') === '') return warnings;
  faults.across(LAYOUT_NAMED, () => {
    const [begin, end, now] = [layout.epochMs, tickStartMs(layout, layout.endTicks), nowMs].map(isoText);
    if (nowMs < layout.epochMs) {
      faults.add(
        'LAYOUT_EPOCH_MS',
        `is ${begin}, later than this machine's time, ${now}: no ID is of a time before it`,
      );
    } else if (nowMs >= tickStartMs(layout, layout.endTicks)) {
      const more = layout.name === 'custom' ? ', or more bits for the timestamp in LAYOUT_FIELDS' : '';
      faults.add('LAYOUT_EPOCH_MS', `ends layout '${layout.name}' at ${end}, and it is ${now}: set a later one${more}`);
    } else if (nowMs + YEAR_MS > tickStartMs(layout, layout.endTicks)) {
      warnings.push(`layout '${layout.name}' has no IDs left from ${end} on: see 'idalloc layout'`);
    }
  });
  return warnings;
}

function choiceOf(values: LayoutValues): LayoutChoice {
  return {
    name: values.LAYOUT,
    fields: values.LAYOUT_FIELDS,
    tickMs: values.LAYOUT_TICK_MS,
    epochMs: values.LAYOUT_EPOCH_MS,
    sequenceStartBelow: values.LAYOUT_SEQUENCE_START_BELOW,
  };
}

function isoText(ms: number): string {
  return new Date(ms).toISOString();
}
