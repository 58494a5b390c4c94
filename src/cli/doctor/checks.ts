import { ALARM_REMEDIES } from '../../adapters/etcd/refusal.ts';
import type { EtcdStatus } from '../../adapters/etcd/status.ts';
import type { TopicsReport } from '../../adapters/kafka/topics/topics.ts';
import { counted, spanText } from '../table.ts';

/** The result of one check. */
export interface Check {
  readonly name: string;
  /** fault: a worker can't run. warn: it can, until something else happens. */
  readonly state: 'ok' | 'warn' | 'fault';
  readonly detail: string;
  /** The remedy. */
  readonly fix?: string;
}

export const ok = (name: string, detail: string): Check => ({ name, state: 'ok', detail });
export const warn = (name: string, detail: string, fix: string): Check => ({ name, state: 'warn', detail, fix });
export const fault = (name: string, detail: string, fix: string): Check => ({ name, state: 'fault', detail, fix });

const CLOCK_ADVICE =
  'run NTP with slewing: chronyd without makestep (or makestep 1 3, for the boot only), or ntpd -x; never ntpd -g, never a step';

/** The release that brought each version of the fetch request. */
const RELEASES: readonly (readonly [number, string])[] = [
  [18, '4.1 or later'],
  [17, '3.9 or 4.0'],
  [16, '3.7 or 3.8'],
  [15, '3.5 or 3.6'],
  [13, '3.1 to 3.4'],
  [12, '2.7 to 3.0'],
  [11, '2.3 to 2.6'],
];
const OLDEST_FETCH = 11;
const SLOW_MS = 500;

export function judgeBroker(broker: string, fetchVersion: number, latencyMs: number): Check {
  const name = `Kafka ${broker}`;
  const release = RELEASES.find(([version]) => fetchVersion >= version)?.[1] ?? 'older than 2.3';
  const detail = `Kafka ${release}, ${spanText(latencyMs)}`;
  if (fetchVersion < OLDEST_FETCH) return fault(name, detail, 'run Kafka 2.3 or later; 4.1 is tested');
  if (latencyMs > SLOW_MS) return warn(name, detail, 'find out why it is slow: each batch waits for one append');
  return ok(name, detail);
}

export function unreachableServer(name: string, why: string, variable: string): Check {
  return fault(name, why, `start it, or correct ${variable}`);
}

/** Likely mistakes in the variables, as a worker logs them at its start. */
export function judgeVariables(warnings: readonly string[]): Check[] {
  return warnings.map((warning) => warn('variables', warning, 'correct this variable'));
}

const DAY_MS = 86_400_000;
const EXPIRES_SOON_MS = 14 * DAY_MS;

/** The expiry of the CA certificates or the certificate in a variable. */
export function judgeCertificate(variable: string, expiresAtMs: number, nowMs: number): Check {
  const name = `certificate ${variable}`;
  const on = new Date(expiresAtMs).toISOString().slice(0, 16).replace('T', ' ');
  const fix = 'replace it: in its file, which needs no restart, or in the variable';
  if (expiresAtMs <= nowMs) return fault(name, `expired on ${on} UTC`, fix);
  const days = Math.floor((expiresAtMs - nowMs) / DAY_MS);
  const detail = `expires on ${on} UTC, in ${days < 1 ? 'less than a day' : counted(days, 'day')}`;
  return expiresAtMs - nowMs < EXPIRES_SOON_MS ? warn(name, detail, fix) : ok(name, detail);
}

/** Topics, their retention rules and the ledger's strength, as a worker would judge them at its start. */
export function judgeTopicReport({ faults, added, warnings, differences, remedies }: TopicsReport): Check[] {
  const fix = remedies.join('; ');
  const checks = [
    ...faults.map(({ code, message }) => fault(`topics ${code}`, message, fix === '' ? 'see the message' : fix)),
    ...warnings.map(({ code, message }) => warn(`topics ${code}`, message, 'for production: three brokers or more')),
    ...added.map(({ code, message }) => warn(`topics ${code}`, message, fix)),
    ...(differences.length > 0 ? [warn('topics', differences.join('; '), fix)] : []),
  ];
  return checks.length > 0
    ? checks
    : [ok('topics', 'exist with the expected settings; the ledger is kept longer than the requests')];
}

const ETCD_SLOW_MS = 1_000;
/** The share of its quota up to which a database of etcd is not reported. */
const ETCD_LARGE_SHARE = 0.75;

export function judgeEtcd(endpoint: string, facts: EtcdStatus, quotaBytes: number): Check {
  const name = `etcd ${endpoint}`;
  const role = facts.isLeader ? 'leader' : 'follower';
  const detail = `etcd ${facts.version}, ${role}, ${Math.round(facts.dbBytes / 2 ** 20)} MiB, ${spanText(facts.latencyMs)}`;
  if (!facts.hasLeader) return fault(name, `${detail}; it has no leader`, 'start members until a majority runs');
  if (facts.alarms.length > 0) {
    const fix = facts.alarms.map((alarm) => ALARM_REMEDIES[alarm]).join('; ');
    return fault(name, `${detail}; it refuses writes: alarm ${facts.alarms.join(', ')}`, fix);
  }
  if (!/^3\.([5-9]|\d\d)\./.test(facts.version) && !/^([4-9]|\d\d)\./.test(facts.version)) {
    return warn(name, detail, 'run etcd 3.5 or later');
  }
  if (facts.dbBytes > ETCD_LARGE_SHARE * quotaBytes) {
    const share = Math.round((100 * facts.dbBytes) / quotaBytes);
    return warn(
      name,
      `${detail}, ${share} % of ETCD_QUOTA_BYTES`,
      'compact and defragment it before it refuses writes',
    );
  }
  if (facts.latencyMs > ETCD_SLOW_MS)
    return warn(name, detail, 'check its disk: a lease needs responses within seconds');
  return ok(name, detail);
}

/** So few revisions may be all that there ever were, and cost nothing. */
export const FEW_REVISIONS = 10_000n;
/** Sequences in use make up to a hundred revisions a second; this many are some hours of them. */
export const MANY_REVISIONS = 1_000_000n;
const COMPACT = 'run each etcd member with --auto-compaction-mode=periodic --auto-compaction-retention=5m';

/** Whether etcd compacts by itself, judged by what it still has of the past: its API does not show its settings. */
export function judgeCompaction(revision: bigint, keeps: { readonly first: boolean; readonly many: boolean }): Check {
  const name = 'etcd compaction';
  if (revision <= FEW_REVISIONS) return ok(name, `only ${revision} revisions so far: too few to judge`);
  if (keeps.first)
    return warn(name, `etcd keeps all of its ${revision} revisions: nothing was ever compacted`, COMPACT);
  if (!keeps.many) return ok(name, `at revision ${revision}, of which the old ones are compacted`);
  return warn(name, `etcd keeps more than ${MANY_REVISIONS} old revisions`, COMPACT);
}

/** A cluster of fewer than three members can't lose one. */
export function judgeEtcdSize(endpoints: number): Check {
  if (endpoints >= 3) return ok('etcd size', counted(endpoints, 'endpoint'));
  return warn(
    'etcd size',
    counted(endpoints, 'endpoint'),
    'for production: three members, all of them in ETCD_ENDPOINTS',
  );
}

/** The worker acts on a drift of more than this. */
const DRIFT_MS = 1_000;

/**
 * Compares our clock with a server that reported its time in whole seconds, between `sentMs` and `receivedMs` of our clock.
 * Only what is certain counts: the server's time was in [reportedMs, reportedMs + 1000).
 */
export function judgeClock(server: string, reportedMs: number, sentMs: number, receivedMs: number): Check {
  const name = `clock against ${server}`;
  const [least, most] = [reportedMs - receivedMs, reportedMs + 999 - sentMs];
  if (least > DRIFT_MS) return fault(name, `this machine is at least ${spanText(least)} behind`, CLOCK_ADVICE);
  if (most < -DRIFT_MS) return fault(name, `this machine is at least ${spanText(-most)} ahead`, CLOCK_ADVICE);
  return ok(name, `within ${spanText(Math.max(Math.abs(least), Math.abs(most)))}`);
}

/** `line`: the output of `chronyc -c tracking`. Undefined for any other text. */
export function judgeChrony(line: string): Check | undefined {
  const fields = line.trim().split(',');
  const offsetMs = Number(fields[4]) * 1_000;
  if (fields.length < 14 || Number.isNaN(offsetMs)) return undefined;
  const detail = `chrony: ${fields[13]}, stratum ${fields[2]}, off by ${offsetMs.toFixed(3)} ms`;
  const synchronised = fields[13] === 'Normal' && fields[2] !== '0';
  return synchronised ? ok('NTP', detail) : fault('NTP', detail, CLOCK_ADVICE);
}

/** `text`: the output of `timedatectl show`. Undefined if it has no NTP state. */
export function judgeTimedatectl(text: string): Check | undefined {
  const value = /^NTPSynchronized=(yes|no)$/m.exec(text)?.[1];
  if (value === undefined) return undefined;
  if (value === 'yes') return ok('NTP', 'timedatectl: synchronised');
  return fault('NTP', 'timedatectl: not synchronised', CLOCK_ADVICE);
}

export function unknownNtp(): Check {
  return warn('NTP', 'neither chronyc nor timedatectl reports a synchronised clock', CLOCK_ADVICE);
}

/** `text`: the content of chrony.conf. A step after the boot ejects every worker of the machine. */
export function judgeChronyConf(text: string): Check | undefined {
  const rule = /^[ \t]*makestep[ \t]+(\S+)[ \t]+(-?\d+)/m.exec(text);
  if (rule === null) return undefined;
  const [, threshold, limit] = rule;
  if (Number(limit) >= 0 && Number(limit) <= 3) return undefined;
  return warn(
    'NTP steps',
    `chrony.conf has 'makestep ${threshold} ${limit}': the clock may step at any time`,
    CLOCK_ADVICE,
  );
}

const OPEN_FILES = 4_096;

/** `text`: the content of /proc/self/limits. Undefined if it has no limit of open files. */
export function judgeLimits(text: string): Check | undefined {
  const soft = /^Max open files\s+(\d+|unlimited)/m.exec(text)?.[1];
  if (soft === undefined) return undefined;
  const detail = `${soft} open files`;
  if (soft === 'unlimited' || Number(soft) >= OPEN_FILES) return ok('limits', detail);
  return warn(
    'limits',
    detail,
    `raise it to ${OPEN_FILES} or more with ulimit -n, LimitNOFILE= or the container's ulimits`,
  );
}

const LITTLE_BYTES = 2 ** 30;
const NO_BYTES = 100 * 2 ** 20;

export function judgeDisk(directory: string, writable: boolean, freeBytes: number): Check {
  const name = 'index directory';
  const detail = `${directory}, ${(freeBytes / 2 ** 30).toFixed(1)} GiB free`;
  if (!writable) return fault(name, `${detail}, not writable`, 'let the worker write there, or set INDEX_DIR');
  if (freeBytes < NO_BYTES) return fault(name, detail, 'free disk space: the index is a copy of the ledger');
  if (freeBytes < LITTLE_BYTES) return warn(name, detail, 'free disk space: the index is a copy of the ledger');
  return ok(name, detail);
}
