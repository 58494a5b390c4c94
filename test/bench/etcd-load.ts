/** What an etcd cluster has done since some moment. Bytes of the log are those of all members together. */
export interface EtcdLoad {
  readonly puts_per_second: number;
  readonly transactions_per_second: number;
  readonly wal_bytes_per_second: number;
  /** How much the database of the largest member has grown; it is reused once old revisions are compacted. */
  readonly database_growth_bytes_per_second: number;
}

interface Totals {
  readonly atMs: number;
  readonly puts: number;
  readonly transactions: number;
  readonly walBytes: number;
  readonly databaseBytes: number;
}

const TIMEOUT_MS = 5_000;

/** The value of the series without labels that has one of these names, which differ between versions of etcd. */
function metricIn(page: string, names: readonly string[]): number {
  const lines = page.split('\n');
  const line = names.flatMap((name) => lines.filter((text) => text.startsWith(`${name} `)))[0];
  if (line === undefined) throw new Error(`etcd has no metric ${names.join(' or ')}`);
  return Number(line.split(' ')[1]);
}

async function totalsOf(endpoints: readonly string[]): Promise<Totals> {
  const pages = await Promise.all(
    endpoints.map(async (endpoint) => {
      const answer = await fetch(`${endpoint}/metrics`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
      if (!answer.ok) throw new Error(`${endpoint}/metrics: ${answer.status}`);
      return answer.text();
    }),
  );
  const each = (...names: readonly string[]) => pages.map((page) => metricIn(page, names));
  return {
    atMs: performance.now(),
    // Every member applies every write, so one of them counts all.
    puts: Math.max(...each('etcd_mvcc_put_total', 'etcd_debugging_mvcc_put_total')),
    transactions: Math.max(...each('etcd_mvcc_txn_total', 'etcd_debugging_mvcc_txn_total')),
    walBytes: each('etcd_disk_wal_write_bytes_total').reduce((total, bytes) => total + bytes, 0),
    databaseBytes: Math.max(...each('etcd_mvcc_db_total_size_in_bytes')),
  };
}

/** Begins to measure what etcd does; the result ends the measurement. */
export async function measureEtcd(endpoints: readonly string[]): Promise<() => Promise<EtcdLoad>> {
  const before = await totalsOf(endpoints);
  return async () => {
    const after = await totalsOf(endpoints);
    const seconds = (after.atMs - before.atMs) / 1_000;
    const rate = (name: keyof Totals) => Math.round((after[name] - before[name]) / seconds);
    return {
      puts_per_second: rate('puts'),
      transactions_per_second: rate('transactions'),
      wal_bytes_per_second: rate('walBytes'),
      database_growth_bytes_per_second: rate('databaseBytes'),
    };
  };
}
