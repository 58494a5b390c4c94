import { RENEWAL } from '../../src/codec/sequence-entry.ts';
import { renewalsIn } from './answer-checks.ts';
import { placeName, requestsByPlace } from './decisions.ts';
import type { History } from './history.ts';
import { COARSE } from './setting.ts';

/** Counts of the hard cases that occurred: a simulation without them proves nothing. */
export interface Tally {
  readonly requests: number;
  readonly replies: number;
  readonly replayed: number;
  readonly conflicts: number;
  readonly forgotten: number;
  readonly expired: number;
  readonly quotaExceeded: number;
  readonly deadLetters: number;
  /** Partitions that an operator replayed, and requests that were refused since they were answered before. */
  readonly replays: number;
  readonly answeredBefore: number;
  /** Requests that share a dead letter with others. */
  readonly inRanges: number;
  readonly forwarded: number;
  /** Batches with hundreds of records, which the first cursor leaves unread. */
  readonly denseBatches: number;
  /** Ledger entries that lost, because another came first. */
  readonly losers: number;
  readonly unansweredAppends: number;
  readonly trims: number;
  readonly truncations: number;
  readonly requestTrims: number;
  readonly requestTruncations: number;
  /** Requests that clients sent again, with the time of the first. */
  readonly dated: number;
  /** Requests that got numbers of a sequence, and records of numbers that are void. */
  readonly numbered: number;
  readonly voids: number;
  /** Losses of numbers that the ledger states. */
  readonly lossesStated: number;
  /** Swaps of numbers, and other clusters, volumes from backups. */
  readonly swaps: number;
  readonly replacements: number;
  readonly volumes: number;
  /** Replies to requests with a request ID that had their batch under another correlation ID before. */
  readonly triedAgain: number;
  /** Decisions that were renewed for a later request, and fetches that read entries back. */
  readonly renewals: number;
  readonly readBacks: number;
  readonly copiesRestored: number;
  readonly copiesDropped: number;
  /** Partitions assigned as warm-ups. */
  readonly warmUps: number;
  /** Owners killed while another worker had a complete copy and no other fault was active. */
  readonly takeOvers: number;
  /** Changes of the leaders of ledger partitions. */
  readonly elections: number;
  readonly rebalances: number;
  readonly terms: number;
  /** Responses with IDs over HTTP, clocks that drifted, machines gone for good, histories with the coarse layout. */
  readonly overHttp: number;
  readonly drifts: number;
  readonly gone: number;
  readonly coarse: number;
  readonly setBacks: number;
  /** The longest time from the end of the faults until everything was answered. */
  readonly healedMs: number;
}

export const NOTHING: Tally = {
  requests: 0,
  replies: 0,
  replayed: 0,
  conflicts: 0,
  forgotten: 0,
  expired: 0,
  quotaExceeded: 0,
  deadLetters: 0,
  replays: 0,
  answeredBefore: 0,
  inRanges: 0,
  forwarded: 0,
  denseBatches: 0,
  losers: 0,
  unansweredAppends: 0,
  trims: 0,
  truncations: 0,
  requestTrims: 0,
  requestTruncations: 0,
  dated: 0,
  numbered: 0,
  voids: 0,
  lossesStated: 0,
  swaps: 0,
  replacements: 0,
  volumes: 0,
  triedAgain: 0,
  renewals: 0,
  readBacks: 0,
  copiesRestored: 0,
  copiesDropped: 0,
  warmUps: 0,
  takeOvers: 0,
  elections: 0,
  rebalances: 0,
  terms: 0,
  overHttp: 0,
  drifts: 0,
  gone: 0,
  coarse: 0,
  setBacks: 0,
  healedMs: 0,
};

export function tallyOf(history: History): Tally {
  const { requests, replies, letters, forwards, entries, appends, trims, requestTrims, losses, grants, setBacks } =
    history;
  const { copies } = history;
  const renewals = renewalsIn(history);
  const codes = replies.map(({ reply }) => ('error' in reply ? reply.error.code : 'batch'));
  const keys = new Set(entries.map(({ partition, correlationId }) => `${partition}/${correlationId}`));
  return {
    requests: requests.length,
    replies: replies.length,
    replayed: replies.length - new Set(replies.map(({ partition, offset }) => `${partition}/${offset}`)).size,
    conflicts: codes.filter((code) => code === 'CONFLICT').length,
    forgotten: codes.filter((code) => code === 'FORGOTTEN').length,
    expired: codes.filter((code) => code === 'EXPIRED').length,
    quotaExceeded: codes.filter((code) => code === 'QUOTA_EXCEEDED').length,
    deadLetters: letters.length,
    replays: history.replays.length,
    answeredBefore: codes.filter((code) => code === 'ANSWERED_BEFORE').length,
    inRanges: letters.filter(({ isRange }) => isRange).length,
    forwarded: forwards.length,
    denseBatches: history.denseBatches,
    losers: entries.length - keys.size - renewals,
    unansweredAppends: appends.filter(({ answered }) => !answered).length,
    trims: trims.length,
    truncations: losses.length,
    requestTrims: requestTrims.filter(({ low }) => low > 0).length,
    requestTruncations: history.requestLosses.length,
    numbered: replies.filter(({ reply }) => 'numbers' in reply).length,
    voids: history.numbers.filter(({ at, offset }) => at !== offset && at !== RENEWAL).length,
    lossesStated: history.statements.filter(({ isLoss, at, offset }) => isLoss && at === offset).length,
    swaps: history.heads.filter(({ what }) => what === 'pending').length,
    replacements: history.replacements.length,
    volumes: history.volumes,
    dated: requests.filter(({ firstSentMs }) => firstSentMs !== undefined).length,
    triedAgain: triedAgainIn(history),
    renewals,
    readBacks: history.readBacks,
    copiesRestored: copies.filter(({ what }) => what === 'restored').length,
    copiesDropped: copies.filter(({ what }) => what === 'dropped').length,
    warmUps: history.warmUps,
    takeOvers: history.takeOvers.length,
    elections: history.elections,
    rebalances: history.rebalances,
    terms: new Set(grants.map(({ workerId, fence }) => `${workerId}/${fence}`)).size,
    overHttp: history.overHttp.length,
    drifts: history.drifts,
    gone: history.gone,
    coarse: history.layout === COARSE ? 1 : 0,
    setBacks: setBacks.length,
    healedMs: Math.round(history.healedMs ?? 0),
  };
}

function triedAgainIn({ requests, replies }: History): number {
  const known = requestsByPlace({ requests });
  const batches = replies.flatMap((record) => {
    const request = 'batch' in record.reply ? known.get(placeName(record)) : undefined;
    return request?.triedAs === undefined ? [] : [{ name: request.correlationId, triedAs: request.triedAs }];
  });
  const tries = Map.groupBy(batches, ({ name }) => name).values();
  return tries.reduce((sum, all) => sum + new Set(all.map(({ triedAs }) => triedAs)).size - 1, 0);
}

export function sum(a: Tally, b: Tally): Tally {
  const names = Object.keys(a) as (keyof Tally)[];
  const added = Object.fromEntries(names.map((name) => [name, a[name] + b[name]])) as unknown as Tally;
  return { ...added, healedMs: Math.max(a.healedMs, b.healedMs) };
}

/** A case that occurred less often than this in a run of many seeds was not really tried. */
const LEAST = 5;

/** The hard cases that hardly occurred. */
export function seldomIn(tally: Tally): string[] {
  return Object.entries(tally).flatMap(([name, times]) => (times < LEAST ? [name] : []));
}
