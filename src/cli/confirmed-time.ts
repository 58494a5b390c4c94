import { type WallMs, wallMs } from '../core/units.ts';
import { IdallocError } from '../errors.ts';
import type { CliContext } from './context.ts';
import { timeText } from './table.ts';

/** A namespace that was left alone for longer, or a clock further behind its last use, is no matter of course. */
const MAX_IDLE_MS = 24 * 3_600_000;
const MAX_BEHIND_MS = 60_000;
const AGREEMENT_MS = 60_000;

/**
 * The present time, in which one can trust: IDs are put above it, and a clock that is wrong by years would end the
 * layout, or lie below what was used. `given` (by --now) or this machine's clock is believed when the last use was within
 * a day before; where that does not fit, both have to agree, or somebody at the terminal has to type the date.
 *
 * @throws IdallocError NOT_CONFIRMED
 */
export async function confirmedTime(
  { now, terminal, ask }: Pick<CliContext, 'now' | 'terminal' | 'ask'>,
  given: number | undefined,
  lastUse: WallMs | undefined,
): Promise<WallMs> {
  const clock = now();
  const time = wallMs(given ?? clock);
  const likely = lastUse !== undefined && time >= lastUse - MAX_BEHIND_MS && time <= lastUse + MAX_IDLE_MS;
  if (likely || (given !== undefined && Math.abs(given - clock) <= AGREEMENT_MS)) return time;
  const traces =
    lastUse === undefined ? 'nothing was found that was ever used' : `the last use was ${timeText(lastUse)}`;
  const doubt = `It is said to be ${timeText(time)}, but ${traces}.`;
  if (!terminal.input || !terminal.errors) {
    throw new IdallocError('NOT_CONFIRMED', `${doubt} Set this machine's clock, and give the same time by --now`);
  }
  const typed = await ask(`${doubt} Type today's date in UTC, as 2026-06-02: `);
  if (timeText(time).startsWith(`${typed.trim()}T`)) return time;
  throw new IdallocError('NOT_CONFIRMED', `that is not the date of ${timeText(time)}; nothing was done`);
}
