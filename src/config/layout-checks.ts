import { type Layout, tickStartMs } from '../core/layout.ts';
import { chooseLayout, type LayoutChoice } from '../core/layout-choice.ts';
import { type PresetProblem, presetLayout } from '../core/presets.ts';
import { ConfigErrors, type Environment, parseTable } from './parse.ts';
import { LAYOUT_VARIABLES, type LayoutValues } from './variables.ts';

/** The variable for each property of a layout. */
export const LAYOUT_VARIABLE_OF = {
  name: 'LAYOUT',
  fields: 'LAYOUT_FIELDS',
  tickMs: 'LAYOUT_TICK_MS',
  epochMs: 'LAYOUT_EPOCH_MS',
  sequenceStartBelow: 'LAYOUT_SEQUENCE_START_BELOW',
  // These have no variable: errors in them are reported for LAYOUT.
  workerBits: 'LAYOUT',
  sequenceBits: 'LAYOUT',
} as const satisfies Record<PresetProblem['property'], keyof LayoutValues>;

/**
 * The variables that define the layout: while one of them is invalid, nothing that depends on the layout is checked.
 */
export const LAYOUT_NAMED: readonly string[] = Object.keys(LAYOUT_VARIABLES);

const YEAR_MS = 365.2425 * 86_400_000;

/** The configured layout; after an error, the default layout as a placeholder. */
export function layoutOf(values: LayoutValues, errors: ConfigErrors): Layout {
  const chosen = chooseLayout(choiceOf(values));
  if ('layout' in chosen) return chosen.layout;
  errors.ifValid(['LAYOUT'], () => {
    const all = chosen.problems.map(({ property, problem }) => [LAYOUT_VARIABLE_OF[property], problem] as const);
    // A variable that could not be parsed is reported already; its placeholder value must not be checked.
    const own = all.filter(([name]) => !errors.has(name));
    for (const [name, problem] of own) errors.add(name, problem);
  });
  return presetLayout('default');
}

/** The layout variables of the environment; no others are checked. Throws CONFIG_INVALID. */
export function layoutChoiceOf(env: Environment): LayoutChoice {
  const errors = new ConfigErrors();
  const readText = () => '';
  const values = parseTable(LAYOUT_VARIABLES, { env, readText, errors, secretFiles: [] });
  errors.throwIfAny();
  return choiceOf(values);
}

/**
 * A layout whose configured epoch leaves no IDs for the current time is an error, since the worker would only wait; one
 * that ends within a year is a warning. Published epochs are not checked: a clock that is off by decades is the clock
 * guard's concern.
 */
export function lifetimeWarnings(
  layout: Layout,
  env: Environment,
  nowMs: number,
  errors: ConfigErrors,
): readonly string[] {
  const warnings: string[] = [];
  if ((env.LAYOUT_EPOCH_MS ?? '') === '') return warnings;
  errors.ifValid(LAYOUT_NAMED, () => {
    const [begin, end, now] = [layout.epochMs, tickStartMs(layout, layout.endTicks), nowMs].map(isoText);
    if (nowMs < layout.epochMs) {
      errors.add('LAYOUT_EPOCH_MS', `is ${begin}, in the future (it is ${now}): set an earlier one`);
    } else if (nowMs >= tickStartMs(layout, layout.endTicks)) {
      const more = layout.name === 'custom' ? ', or more bits for the timestamp in LAYOUT_FIELDS' : '';
      errors.add(
        'LAYOUT_EPOCH_MS',
        `makes layout '${layout.name}' end at ${end}, in the past (it is ${now}): set a later one${more}`,
      );
    } else if (nowMs + YEAR_MS > tickStartMs(layout, layout.endTicks)) {
      warnings.push(`layout '${layout.name}' runs out of IDs at ${end}: see 'idalloc layout'`);
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
