/** One reply as `idalloc request --json` prints it. */
export interface Reply {
  readonly correlation_id: string;
  readonly count: number;
  readonly ids: readonly {
    readonly value_string: string;
    readonly value_hex: string;
    readonly breakdown: {
      readonly timestamp_ms: number;
      readonly datacenter_id: number;
      readonly worker_id: number;
      readonly sequence_number: number;
    };
  }[];
  readonly datacenter_id: number;
  readonly worker_id: number;
  readonly fence: string | number;
  readonly replayed: boolean;
}

/** The reply in the output of `idalloc request --json`, and its line. Throws if there is none. */
export function parseReply(output: string): { line: string; reply: Reply } {
  const line = output.trimEnd().split('\n').at(-1) ?? '';
  let reply: Partial<Reply> | undefined;
  try {
    reply = JSON.parse(line);
  } catch {
    reply = undefined; // reported below, like a JSON value that is not a reply
  }
  if (!Array.isArray(reply?.ids) || reply.ids.length === 0) {
    throw new Error(`idalloc request --json printed no reply, but: ${output.trim() || '(nothing)'}`);
  }
  return { line, reply: reply as Reply };
}

/** The reply as text. */
export function presentReply(reply: Reply): string {
  const rows = reply.ids.map(({ value_string, value_hex, breakdown: b }) => [
    value_string,
    value_hex,
    new Date(b.timestamp_ms).toISOString(),
    String(b.sequence_number),
  ]);
  return [
    `A worker answered over Kafka with ${reply.count} IDs:`,
    '',
    ...table([['ID', 'hex', 'time', 'sequence'], ...rows]),
    '',
    `  datacenter ${reply.datacenter_id}, worker ${reply.worker_id}, fence ${reply.fence}`,
    `  correlation ID ${reply.correlation_id}${reply.replayed ? ' (a replay)' : ''}`,
  ].join('\n');
}

function table(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  return rows.map((row) => `  ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join('  ')}`.trimEnd());
}

/** Without these a command would use other servers, or require more than one broker. */
const NEEDED = ['KAFKA_BROKERS', 'ETCD_ENDPOINTS', 'DATACENTER_ID', 'ALLOW_WEAK_LEDGER', 'TOPIC_REPLICATION_FACTOR'];

/** The variables with which a command uses the same servers as the worker with this environment. */
export function commandVariables(env: NodeJS.ProcessEnv): Record<string, string> {
  return Object.fromEntries(NEEDED.flatMap((name) => (env[name] === undefined ? [] : [[name, env[name]]])));
}

function exportLine(env: NodeJS.ProcessEnv): string {
  const variables = Object.entries(commandVariables(env)).map(([name, value]) => `${name}=${value}`);
  return `  export ${variables.join(' ')}`;
}

/** What to do without a worker; `found` says whether `bin/idalloc` finds the servers by itself. */
export function presentServers(env: NodeJS.ProcessEnv, found: boolean): string {
  return [
    '',
    'Kafka, etcd and the topics are there, and no worker: requests wait in Kafka until one starts.',
    ...(found ? [] : ['In another terminal, in this directory:', exportLine(env)]),
    'Practise a replay:  bin/idalloc replay --help',
    'Start a worker:     npm start, in another terminal',
    ...(found ? ['For programs elsewhere:', exportLine(env)] : []),
    '',
    'Serving until Ctrl-C.',
  ].join('\n');
}

/** Commands to try next; `env` is the worker's, `found` says whether `bin/idalloc` finds its servers by itself. */
export function presentNextSteps(
  env: NodeJS.ProcessEnv,
  { opsUrl, apiUrl }: { readonly opsUrl: string; readonly apiUrl: string | undefined },
  { logFile, firstId, found }: { readonly logFile: string; readonly firstId: string; readonly found: boolean },
): string {
  const paste = exportLine(env);
  return [
    ...(found
      ? ['In another terminal, in this directory; it finds these servers by itself:']
      : ['In another terminal, in this directory:', paste]),
    '  bin/idalloc request --count 3 --correlation-id first-try',
    '  bin/idalloc topics init --reply-topic id.replies.orders',
    `  bin/idalloc decode ${firstId}`,
    '  bin/idalloc --help',
    ...(found ? ['For programs elsewhere:', paste] : []),
    ...(apiUrl === undefined
      ? []
      : [`Over HTTP:       curl '${apiUrl}/api/v1/ids?count=3'`, `API, to read:    ${apiUrl}/docs`]),
    `Status page:     ${opsUrl}/`,
    `Health:          curl ${opsUrl}/readyz ; curl ${opsUrl}/metrics`,
    `Worker's log:    ${logFile}`,
    'One more worker: npm start, in another terminal',
    '',
    'Serving until Ctrl-C.',
  ].join('\n');
}
