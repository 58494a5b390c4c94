import { type Finding, ReplyJoin, unitsOf } from './check.ts';
import { ToldTwice } from './lost.ts';
import { NumberJoin } from './number-join.ts';
import type { FoundNumbers } from './number-store.ts';
import { OverlapSearch } from './overlap.ts';
import type { AuditReader } from './read.ts';
import type { Checked } from './report.ts';
import { type JoinReader, type Judged, RequestJoin } from './request-join.ts';
import type { AuditStore } from './store.ts';
import { TermSearch } from './witnesses.ts';

/** What the checks need of a reader. */
export type CheckedReader = Pick<AuditReader, 'losses' | 'terms' | 'witnesses'> & JoinReader;

export interface CheckOptions {
  readonly find: (finding: Finding) => void;
  /** Which requests are judged; undefined for none. */
  readonly judged?: Judged | undefined;
}

/** How far a check has come. */
export interface CheckStep {
  readonly what: string;
  readonly total: number;
  readonly done: number;
}

/**
 * All checks of what was read, one after the other: the command runs them over real topics, and the simulator over those of each
 * simulated history. Whoever runs them decides how often to pause between the steps.
 */
export function* checks(
  store: AuditStore,
  reader: CheckedReader,
  { find, judged }: CheckOptions,
): Generator<CheckStep, Checked> {
  const { ledgerReachesMs, losses, lostTails, terms, witnesses, clockMarginMs } = reader;
  const has = (found: FoundNumbers) =>
    losses.has(found) || lostTails.mayHave(Buffer.from(found.sequence, 'latin1'), found.timeMs);
  const numbers = new NumberJoin({ ledgerReachesMs, losses: { has }, find });
  yield* each('checking numbers', store.numbers.size, store.numbers.grouped(), (one) => numbers.take(one));
  yield* each('checking losses', losses.all.length, losses.all, ({ sequence, from, to }) => {
    const twice = new ToldTwice(find);
    for (const one of store.numbers.between(sequence, from, to)) twice.take(one);
  });
  const addUnit = unitsOf((batch, unit, { step, ranges }) => store.addRuns(batch, unit, step, ranges));
  const ledgers = new Set(reader.logs.ledger.map(({ topic }) => topic)).size;
  const join = new ReplyJoin({ ledgerReachesMs, lostTails, find, ledgers, addUnit });
  const requests = judged && new RequestJoin(reader, judged, find);
  yield* each('checking requests and replies', store.size, store.grouped(), (found) => {
    join.take(found);
    requests?.take(found);
  });
  const joined = { ...join.end(), requests: requests?.end() };
  const overlaps = new OverlapSearch(find);
  const termSearch = new TermSearch({ terms, witnesses, clockMarginMs, find });
  yield* each('checking IDs', store.runs, store.byFirstId(), (run) => {
    overlaps.take(run);
    termSearch.take(run);
  });
  return joined;
}

/** A step has at most this many items: the event loop runs in between, so that signals are handled. */
const ITEMS_PER_STEP = 5_000;

function* each<T>(
  what: string,
  total: number,
  items: Iterable<T>,
  take: (item: T) => void,
): Generator<CheckStep, void> {
  let done = 0;
  for (const item of items) {
    take(item);
    done += 1;
    if (done % ITEMS_PER_STEP === 0) yield { what, total, done };
  }
}
