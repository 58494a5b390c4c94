import { hadLost } from './decisions.ts';
import type { CopyEvent, Entry, History } from './history.ts';

/**
 * No worker decides with an incomplete copy: the copy has been read at least to the log's end at the time when it was
 * opened, or emptied to be restored. A decision just after such an event may be based on the copy before it, which
 * counts as well.
 */
export function completeCopies(history: History): string | undefined {
  const begun = new Map<string, CopyEvent[]>();
  for (const event of history.copies) {
    if (event.what !== 'opened' && event.what !== 'emptied') continue;
    const name = `${event.process} ${event.partition}`;
    begun.set(name, [...(begun.get(name) ?? []), event]);
  }
  const early = history.entries.find((entry) => {
    if (hadLost(history, entry.partition, entry.order)) return false;
    const own = begun.get(`${entry.process} ${entry.partition}`)?.filter(({ order }) => order < entry.sent) ?? [];
    return own.length > 0 && entry.end < Math.min(...own.slice(-2).map(({ logEnd }) => logEnd));
  });
  return early && `${early.process} decided ledger ${early.partition}/${early.offset}, having read up to ${early.end}`;
}

/** What happened to the copy from which a process knows something, from then until `by`. */
export function copyEventsSince(
  { copies }: Pick<History, 'copies'>,
  known: { readonly process: string; readonly partition: number; readonly order: number },
  by = Number.POSITIVE_INFINITY,
): readonly CopyEvent[] {
  return copies.filter(({ process, partition, order }) => {
    return process === known.process && partition === known.partition && known.order < order && order < by;
  });
}

/** Whether the copy of an entry's writer had what it learned before, at the look-up or until the copy was emptied. */
export function isKnownTo(
  history: Pick<History, 'copies'>,
  known: Parameters<typeof copyEventsSince>[1] & { readonly offset: number },
  { sent, end }: Pick<Entry, 'sent' | 'end'>,
): boolean {
  if (known.order > sent) return false;
  const since = copyEventsSince(history, known, sent);
  if (since.some(({ what }) => what === 'dropped')) return false;
  return known.offset < end || since.some(({ what }) => what === 'emptied');
}

/** Members report their copies to the group truthfully. */
export function honestCopies({ falseCopies }: History): string | undefined {
  return falseCopies[0];
}

/** Each round of saves reaches the disk before the next one. Disks of simulations confirm a sync immediately. */
export function syncedCopies({ unsynced }: History): string | undefined {
  return unsynced[0];
}

/**
 * After an owner is killed while another worker has a complete copy, the partition is soon served again, without a
 * restore. A copy may be restored while the group still waits for the dead owner.
 */
export function takenOver({ takeOvers, entries, copies }: History): string | undefined {
  for (const { order, until, partition, killed, held, requests } of takeOvers) {
    const within = (at: number): boolean => order < at && at < until;
    const first = entries.find((entry): entry is Entry => {
      return entry.partition === partition && entry.process !== killed && within(entry.order);
    });
    if (first === undefined) {
      if (requests === 0) continue;
      return `partition ${partition} has not been served since ${killed} was killed`;
    }
    const own = copies.filter((event) => event.process === first.process && event.partition === partition);
    const begun = own.findLast(({ order: at, what }) => {
      return within(at) && at < first.order && (what === 'opened' || what === 'emptied');
    });
    if (begun === undefined) continue;
    const wasInTime = own.some(({ order: at, what }) => what === 'restored' && begun.order < at && at < held);
    if (!wasInTime) return `${first.process} restored partition ${partition} after ${killed} was killed`;
  }
  return undefined;
}
