import { askedBy, hadLost } from './decisions.ts';
import type { History } from './history.ts';

/** When an offset is committed, all requests below it have replies, dead letters or copies at home, or were lost unread. */
export function repliedBeforeCommitted({
  requests,
  requestTrims,
  commits,
  told,
  letters,
  forwards,
}: History): string | undefined {
  const landed = new Map<string, number>();
  for (const { partition, offset, landed: at } of [...told, ...letters, ...forwards]) {
    const name = `${partition}/${offset}`;
    landed.set(name, Math.min(at, landed.get(name) ?? Number.POSITIVE_INFINITY));
  }
  const byPlace = askedBy({ requests });
  const checked = new Map<number, number>();
  for (const { partition, offset, sent, accepted } of commits) {
    for (let below = checked.get(partition) ?? 0; below < offset; below += 1) {
      const name = `${partition}/${below}`;
      if (!byPlace.has(name) || (landed.get(name) ?? Number.POSITIVE_INFINITY) <= sent) continue;
      const isGone = requestTrims.some(
        (trim) => trim.partition === partition && trim.low > below && trim.order < accepted,
      );
      if (!isGone) return `${name}, by a commit of ${offset}`;
    }
    checked.set(partition, Math.max(offset, checked.get(partition) ?? 0));
  }
  return undefined;
}

/** Offsets are committed by whom the coordinator has given the partition. */
export function ownCommits({ foreignCommits }: History): string | undefined {
  return foreignCommits[0];
}

/** A process has one append to a partition under way. */
export function oneAppendAtATime({ appends }: History): string | undefined {
  const open = new Map<string, number>();
  for (const { process, partition, sent, ended } of appends) {
    const name = `${process} to ledger ${partition}`;
    if (sent < (open.get(name) ?? 0)) return `${name}: an append was sent while another was under way`;
    open.set(name, ended);
  }
  return undefined;
}

/**
 * Whoever takes a partition over marks it before anything is decided there: so the log has an anchor for as long as
 * anybody serves. A marker by an index that has read nothing looks like one that asks for the time.
 */
export function markedFirst(history: History): string | undefined {
  const { appends, marks, damaged } = history;
  const first = new Map<string, History['appends'][number]>();
  for (const append of appends) {
    if (damaged.includes(append.process)) continue; // its marker may come from an index that is empty by then
    const name = `${append.process} to ledger ${append.partition}`;
    if (!first.has(name)) first.set(name, append);
  }
  for (const [name, { marks: isMarker, partition, started }] of first) {
    const hasRead = marks.some((mark) => mark.partition === partition && mark.order < started);
    if (!isMarker && hasRead && !hadLost(history, partition)) return `${name}: a decision came before the marker`;
  }
  return undefined;
}
