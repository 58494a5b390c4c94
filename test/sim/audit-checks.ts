import { tmpdir } from 'node:os';
import { checks, sinkOf } from '../../src/cli/audit/audit-run.ts';
import type { Finding, FindingCode } from '../../src/cli/audit/found.ts';
import { TOLD_ANEW } from '../../src/cli/audit/numbers.ts';
import { AuditReader } from '../../src/cli/audit/read.ts';
import { Findings } from '../../src/cli/audit/report.ts';
import { AuditStore } from '../../src/cli/audit/store.ts';
import type { Layout } from '../../src/core/layout.ts';
import { isLost } from './decisions.ts';
import type { FinalTopics } from './final-topics.ts';
import type { History } from './history.ts';
import { FIRST, pairAt } from './pairs.ts';
import { CLOCK_MARGIN_MS, PARTITIONS } from './setting.ts';

const MOST = 1_000;
/** At the end of a simulation everything was answered. */
const ALL = { fromMs: Number.NEGATIVE_INFINITY, toMs: Number.POSITIVE_INFINITY, dueBeforeMs: Number.POSITIVE_INFINITY };

/** What `idalloc audit` finds in these topics. */
export function auditOf({ records, logs, nowMs }: FinalTopics, layout: Layout) {
  const findings = new Findings(MOST);
  using store = new AuditStore(tmpdir());
  const reader = new AuditReader(logs, sinkOf(store, findings), {
    clockMarginMs: CLOCK_MARGIN_MS,
    layout,
    requestPartitions: PARTITIONS,
  });
  for (const record of records) reader.take(record);
  reader.end();
  const steps = checks(store, reader, { find: findings.add, judged: { ...ALL, nowMs } });
  for (let step = steps.next(); ; step = steps.next()) {
    if (step.done === true) return { findings: findings.listed, reader, joined: step.value };
  }
}

type Audited = Pick<
  History,
  | 'layout'
  | 'topics'
  | 'requests'
  | 'requestLosses'
  | 'losses'
  | 'marks'
  | 'entries'
  | 'numbers'
  | 'trims'
  | 'requestTrims'
  | 'isBrokerFarOff'
>;

/** What operators audit at the end has no finding, whatever has happened. */
export function audited(history: Audited): string | undefined {
  const { topics } = history;
  if (topics === undefined) return undefined;
  const isUnclear = hasUnstatedLoss(history) || hasUnclearReach(history);
  // Times tell on which side of a rebuild a fence is.
  const isKnown = ({ code }: Finding) =>
    (isUnclear && OF_LOSS.has(code)) || (history.isBrokerFarOff && code === 'FENCE');
  const found = auditOf(topics, history.layout).findings.filter(
    (one) => !isOfTwoPairs(one) && one.message !== TOLD_ANEW && !isOfLostCopies(history, one),
  );
  const [finding, ...more] = found.filter((one) => !isKnown(one));
  if (finding === undefined) return undefined;
  const places = finding.locations.map(({ topic, partition, offset }) => `${topic}/${partition} at ${offset}`);
  return `${finding.code}: ${finding.message} (${places.join(', ')}), and ${more.length} more`;
}

/** What an audit finds where the ledger has lost decisions and nothing says so, or says when. */
const OF_LOSS: ReadonlySet<FindingCode> = new Set([
  'UNDECIDED',
  'DIVERGENT',
  'SPLIT',
  'MISSING_REPLY',
  'UNANSWERED',
  'MISMATCH',
  'WRONG_REFUSAL',
  'VOID',
  'UNREADABLE', // the late entry
]);

/**
 * A partition has lost what etcd had not heard of yet, in the last second before it, or has had no worker since, as in
 * a pair of topics that was left.
 */
function hasUnstatedLoss({ losses, marks, entries, numbers }: Audited): boolean {
  // An entry that was late has a higher end as well, and states nothing.
  const decisions = new Set([...entries, ...numbers].map(({ order }) => order));
  const statements = marks.filter(({ order, offset, end }) => end > offset && !decisions.has(order));
  return losses.some(
    (loss) =>
      loss.from < loss.end &&
      !statements.some(({ partition, order }) => partition === loss.partition && order > loss.order),
  );
}

/**
 * Where a broker's clock was off by more than the margin, the time of the oldest record does not show how far a trimmed
 * log reaches back, nor that of a reply on which side of a loss it is.
 */
function hasUnclearReach({ trims, requestTrims, losses, isBrokerFarOff }: Audited): boolean {
  return isBrokerFarOff && trims.length + requestTrims.length + losses.length > 0;
}

/**
 * Clients use a correlation ID again for the second pair of topics, which decides it anew, and shares the reply topics.
 */
function isOfTwoPairs({ code, locations }: Finding): boolean {
  const ledgers = new Set(locations.filter(({ source }) => source === 'ledger').map(({ topic }) => topic));
  return (code === 'SPLIT' || code === 'DIVERGENT') && ledgers.size > 1;
}

/**
 * A request that was forwarded stays without an answer if the partition that decides it lost all copies with its tail.
 * The finding is right, as nobody answers it before its requester sends it again.
 */
function isOfLostCopies(history: Audited, { code, locations: [of] }: Finding): boolean {
  if ((code !== 'UNANSWERED' && code !== 'MISSING_REPLY') || of?.source !== 'request') return false;
  const correlationId = of.requestId.toString('latin1');
  const copies = history.requests.filter(
    (one) =>
      one.correlationId === correlationId &&
      pairAt(one.partition) === FIRST &&
      one.origin?.partition === of.partition &&
      one.origin.offset === of.offset,
  );
  return copies.length > 0 && copies.every((one) => isLost(history, one));
}
