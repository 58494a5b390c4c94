import { type Command, InvalidArgumentError, Option } from 'commander';
import type { Environment } from '../config/parse.ts';
import type { Layout } from '../core/layout.ts';
import { PRESETS, type PresetName, presetLayout } from '../core/presets.ts';
import { describeError, IdallocError } from '../errors.ts';

/** What a command line says of the layout that its IDs have. */
export interface LayoutOptions {
  readonly layout?: PresetName;
  readonly epochMs?: number;
  readonly workerBits?: number;
  readonly sequenceBits?: number;
}

/** Adds the options by which IDs of any layout can be read. */
export function withLayoutOptions(command: Command): Command {
  return command
    .addOption(
      new Option('--layout <name>', "layout of the IDs (default: LAYOUT's, else default)").choices(
        Object.keys(PRESETS),
      ),
    )
    .option('--epoch-ms <ms>', "the layout's epoch, in ms since 1970, where it is not the published one", parseEpoch)
    .option('--worker-bits <n>', 'bwmarrin only: bits of the node', parseBits)
    .option('--sequence-bits <n>', 'bwmarrin only: bits of the step', parseBits);
}

/**
 * The layout that options and environment (LAYOUT, LAYOUT_EPOCH_MS) ask for; an epoch of the environment belongs to its
 * own layout only. Ends the command with a usage error for one that there can't be.
 */
export function layoutOf(options: LayoutOptions, env: Environment, command: Command): Layout {
  const configured = env.LAYOUT === undefined || env.LAYOUT === '' ? 'default' : env.LAYOUT;
  const name = options.layout ?? configured;
  if (!isPreset(name)) return command.error(`error: LAYOUT '${name}' is unknown; see --layout`);
  const configuredEpoch =
    env.LAYOUT_EPOCH_MS === undefined || env.LAYOUT_EPOCH_MS === '' ? undefined : env.LAYOUT_EPOCH_MS;
  try {
    const ownEpoch = name === configured && configuredEpoch !== undefined ? parseEpoch(configuredEpoch) : undefined;
    return presetLayout(name, { ...options, epochMs: options.epochMs ?? ownEpoch });
  } catch (error) {
    if (error instanceof InvalidArgumentError) return command.error(`error: LAYOUT_EPOCH_MS ${error.message}`);
    if (!(error instanceof IdallocError)) throw error;
    return command.error(`error: ${describeError(error)}; see --epoch-ms, --worker-bits and --sequence-bits`);
  }
}

function isPreset(name: string): name is PresetName {
  return Object.hasOwn(PRESETS, name);
}

function parseEpoch(text: string): number {
  if (!/^[0-9]{1,15}$/.test(text)) throw new InvalidArgumentError('must be whole milliseconds since 1970.');
  return Number(text);
}

function parseBits(text: string): number {
  if (!/^[0-9]{1,2}$/.test(text)) throw new InvalidArgumentError('must be a number of bits.');
  return Number(text);
}
