import { type CliContext, EXIT } from '../context.ts';
import type { JsonFlag } from '../options.ts';
import { counted, present, spanText, table } from '../output.ts';
import { palette } from '../terminal.ts';
import { askAll, type WorkerAnswer, type WorkerChoice, workersToAsk } from './ask.ts';

/** A worker in the view. What it did not say is null. */
type WorkerRow = ReturnType<typeof fieldsOf>;

/** Shows the chosen workers, and fails unless each is ready. */
export async function runStatus(
  context: CliContext,
  names: readonly string[],
  flags: WorkerChoice & JsonFlag,
): Promise<void> {
  const places = await workersToAsk(context, names, flags);
  const answers = await askAll(context, places, '/status');
  const workers = places.map(({ address }, i) => rowOf(address, answers[i] ?? { fault: 'it was not asked' }));
  const view = { workers, ...countsOf(workers) };
  if (view.ready < workers.length || workers.length === 0) context.setExitCode(EXIT.failed);
  present(context, flags.json, view, () => statusText(context, workers));
}

function countsOf(workers: readonly WorkerRow[]) {
  const ready = workers.filter((worker) => worker.ready).length;
  const unreachable = workers.filter(({ reachable }) => !reachable).length;
  return { ready, not_ready: workers.length - ready - unreachable, unreachable };
}

/** The row of a worker by its answer to /status, whatever is in it: another program may listen there. */
export function rowOf(address: string, asked: WorkerAnswer): WorkerRow {
  const silent = { ...fieldsOf(address, {}), reachable: false };
  if ('fault' in asked) return { ...silent, reason: 'UNREACHABLE', detail: asked.fault };
  const status = recordOf(parsed(asked.body));
  const reason = textIn(status, 'reason');
  if (asked.code === 503 && reason !== null) return { ...silent, reachable: true, reason };
  if (asked.code === 200 && typeof status.ready === 'boolean' && Array.isArray(status.partitions))
    return fieldsOf(address, status);
  const detail = `its answer is not that of a worker (${asked.code})`;
  return { ...silent, reachable: true, reason: 'UNREADABLE', detail };
}

function fieldsOf(address: string, status: Fields) {
  const identity = recordOf(status.identity);
  const copies = Array.isArray(status.partitions) ? status.partitions.map(recordOf) : [];
  const owned = copies.filter((copy) => copy.owned === true);
  const [now, started] = [numberIn(status, 'now_ms'), numberIn(status, 'started_ms')];
  return {
    address,
    reachable: true,
    ready: status.ready === true,
    /** A code of the runbook; UNREACHABLE: it did not answer, UNREADABLE: something that is no worker did. */
    reason: textIn(status, 'reason'),
    detail: textIn(status, 'detail'),
    warning: textIn(status, 'warning'),
    version: textIn(status, 'version'),
    worker_id: numberIn(identity, 'worker_id'),
    fence: textIn(identity, 'fence'),
    /** Until the worker stops by itself unless etcd answers. */
    lease_margin_ms: numberIn(identity, 'lease_margin_ms'),
    uptime_ms: now === null || started === null ? null : now - started,
    owned_partitions: owned.length,
    standby_partitions: copies.length - owned.length,
    /** Entries that the copy lacks which is furthest behind. */
    copy_lag: highest(copies, 'copy_lag'),
    /** How long the oldest request waits in a partition that it owns. */
    oldest_request_ms: highest(owned, 'oldest_request_ms'),
  };
}

type Fields = Readonly<Record<string, unknown>>;

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined; // what is no JSON has none of the fields
  }
}

function recordOf(value: unknown): Fields {
  return typeof value === 'object' && value !== null ? (value as Fields) : {};
}

function textIn(fields: Fields, name: string): string | null {
  const value = fields[name];
  return typeof value === 'string' ? value : null;
}

function numberIn(fields: Fields, name: string): number | null {
  const value = fields[name];
  return typeof value === 'number' ? value : null;
}

function highest(rows: readonly Fields[], name: string): number {
  return rows.reduce((most, row) => Math.max(most, numberIn(row, name) ?? 0), 0);
}

const NUMBERS = ['>worker', '>lease', '>up', '>owned', '>standby', '>lag', '>oldest'];
const COLUMNS = ['address', 'state', 'version', ...NUMBERS];

/** A table, then a line for each worker that needs a look. */
function statusText(context: CliContext, workers: readonly WorkerRow[]): string {
  if (workers.length === 0) return 'no worker holds a worker ID: start one, or name those that wait\n';
  const paint = palette(context);
  const rows = workers.map((worker) => [
    worker.address,
    worker.ready ? 'ready' : (worker.reason ?? 'not ready'),
    worker.version ?? '-',
    String(worker.worker_id ?? '-'),
    worker.lease_margin_ms === null ? '-' : spanText(worker.lease_margin_ms),
    worker.uptime_ms === null ? '-' : spanText(worker.uptime_ms),
    ...(worker.uptime_ms === null
      ? ['-', '-', '-', '-']
      : [
          String(worker.owned_partitions),
          String(worker.standby_partitions),
          String(worker.copy_lag),
          spanText(worker.oldest_request_ms),
        ]),
  ]);
  const notes = workers.flatMap(({ address, ready, detail, warning }) => [
    ...(!ready && detail !== null ? [paint.red(`${address}: ${detail}`)] : []),
    ...(warning === null ? [] : [paint.yellow(`${address}: ${warning}`)]),
  ]);
  const { ready, not_ready: waiting, unreachable } = countsOf(workers);
  const sum = `${ready} of ${counted(workers.length, 'worker')} ready, ${waiting} not ready, ${unreachable} unreachable`;
  if (unreachable > 0)
    notes.push(paint.dim('workers answer other machines only if OPS_HOST lets them, as 0.0.0.0 does'));
  const lines = [...notes, ready === workers.length ? paint.green(sum) : paint.red(sum)];
  return `${table(COLUMNS, rows)}${lines.join('\n')}\n`;
}
