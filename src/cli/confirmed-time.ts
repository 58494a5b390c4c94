import { type WallMs, wallMs } from '../core/units.ts';
import { IdallocError } from '../errors.ts';
import type { CliContext } from './context.ts';
import { timeText } from './table.ts';

/** A namespace that was idle for longer, or a clock further behind its last use, needs a confirmation. */
const MAX_IDLE_MS = 24 * 3_600_000;
const MAX_BEHIND_MS = 60_000;
const AGREEMENT_MS = 60_000;

/**
 * The current time, confirmed. New IDs start above it, so a clock that is years ahead would use up the layout, and one that
 * is behind could repeat IDs. `supplied` (--now), or else this machine's clock, is accepted when the last use was within the
 * day before it. Otherwise both have to agree, or the user has to type the date.
 *
 * @throws IdallocError NOT_CONFIRMED
 */
export async function confirmedTime(
  { now, terminal, ask }: Pick<CliContext, 'now' | 'terminal' | 'ask'>,
  supplied: number | undefined,
  lastUse: WallMs | undefined,
): Promise<WallMs> {
  const clock = now();
  const time = wallMs(supplied ?? clock);
  const likely = lastUse !== undefined && time >= lastUse - MAX_BEHIND_MS && time <= lastUse + MAX_IDLE_MS;
  if (likely || (supplied !== undefined && Math.abs(supplied - clock) <= AGREEMENT_MS)) return time;
  const traces = lastUse === undefined ? 'no earlier use was found' : `the last use was ${timeText(lastUse)}`;
  const suspicion = `The time is given as ${timeText(time)}, but ${traces}.`;
  if (!terminal.input || !terminal.errors) {
    throw new IdallocError('NOT_CONFIRMED', `${suspicion} Set this machine's clock, and pass the same time with --now`);
  }
  const typed = await ask(`${suspicion} Type today's date in UTC, as 2026-06-02: `);
  if (timeText(time).startsWith(`${typed.trim()}T`)) return time;
  throw new IdallocError('NOT_CONFIRMED', `that is not the date of ${timeText(time)}; nothing was changed`);
}
