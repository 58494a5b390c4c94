import { execFileSync } from 'node:child_process';
import { chownSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import postgres from 'postgres';
import { which } from '../../ops/bare/toolchain.ts';
import { logHolds, startChild, untilReady } from '../../ops/dev/child.ts';

/** Where Debian has the programs, each version in a folder. */
const VERSIONS = '/usr/lib/postgresql';
/** nobody: PostgreSQL refuses to run as root. */
const UNPRIVILEGED = 65_534;
const USER = 'bench';
const READY_MS = 60_000;
/** Why a server does not start while processes of the one before, which was killed, have not noticed that yet. */
const IN_USE = 'pre-existing shared memory block';

/** Gapless numbers as they are usual in a database: a row for each sequence, locked until the document is committed. */
export interface PostgresNumbers extends AsyncDisposable {
  readonly version: string;
  /** Takes the next numbers and inserts a document with them, in one transaction. */
  take(sequence: string, count: number, document: string): Promise<void>;
  /** The sum of all numbers that were taken, and the documents; for a check that none is missing. */
  taken(): Promise<{ readonly numbers: number; readonly documents: number }>;
}

/** A server, and a pool of connections to it. */
export interface Postgres extends AsyncDisposable {
  readonly version: string;
  /** Connects again by itself after a crash. */
  readonly sql: postgres.Sql;
  /** Kills the server as a crash would, and starts it again on its data. */
  crash(): Promise<void>;
}

/**
 * A server of its own with the default settings, on a new directory that is removed with it; undefined if PostgreSQL is
 * not installed.
 */
export async function startPostgres(connections: number): Promise<Postgres | undefined> {
  const programs = programDirectory();
  if (programs === undefined) return undefined;
  const dir = mkdtempSync(join(tmpdir(), 'idalloc-postgres-'));
  const asRoot = process.getuid?.() === 0;
  if (asRoot) chownSync(dir, UNPRIVILEGED, UNPRIVILEGED);
  const drop = asRoot ? ['setpriv', `--reuid=${UNPRIVILEGED}`, `--regid=${UNPRIVILEGED}`, '--clear-groups'] : [];
  const commandOf = (program: string, ...args: string[]) => [...drop, join(programs, program), ...args];
  const data = join(dir, 'data');
  const [init = '', ...initArgs] = commandOf('initdb', '-D', data, '-A', 'trust', '-U', USER, '-E', 'UTF8');
  execFileSync(init, initArgs, { stdio: ['ignore', 'ignore', 'inherit'], cwd: dir });
  // A socket in the directory needs no free port.
  const [command = '', ...args] = commandOf('postgres', '-D', data, '-k', dir, '-c', 'listen_addresses=');
  const logFile = `${dir}.log`;
  const launch = () => startChild({ name: 'PostgreSQL', command, args, cwd: dir, logFile });
  let child = await launch();
  const sql = postgres({ host: dir, user: USER, database: 'postgres', max: connections, onnotice: () => undefined });
  const stop = async () => {
    await sql.end({ timeout: 5 });
    await child.stop();
    rmSync(dir, { recursive: true, force: true });
    for (const log of [logFile, `${logFile}.1`]) rmSync(log, { force: true });
  };
  const answers = () =>
    sql`select 1`.then(
      () => true,
      () => false,
    );
  const ready = () => untilReady(child, answers, { timeoutMs: READY_MS });
  const crash = async () => {
    await child.kill();
    for (;;) {
      child = await launch();
      try {
        return await ready();
      } catch (error) {
        if (!logHolds(logFile, IN_USE)) throw error;
      }
    }
  };
  try {
    await ready();
    const [{ server_version: version = '' } = {}] = await sql`show server_version`;
    return { version, sql, crash, [Symbol.asyncDispose]: stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Gapless numbers of some sequences, on a server that ends with them; undefined if PostgreSQL is not installed. */
export async function startNumbers(
  sequences: readonly string[],
  connections: number,
): Promise<PostgresNumbers | undefined> {
  const server = await startPostgres(connections);
  if (server === undefined) return undefined;
  const { sql, version } = server;
  try {
    await sql`create table sequences (name text primary key, next bigint not null)`;
    await sql`create table documents (sequence text, number bigint, document text, primary key (sequence, number))`;
    await sql`insert into sequences select name, 1 from unnest(${sql.array([...sequences])}::text[]) as name`;
  } catch (error) {
    await server[Symbol.asyncDispose]();
    throw error;
  }
  return {
    version,
    take: (sequence, count, document) => take(sql, sequence, count, document),
    async taken() {
      const [{ numbers = 0 } = {}] = await sql`select sum(next - 1)::float8 as numbers from sequences`;
      const [{ documents = 0 } = {}] = await sql`select count(*)::float8 as documents from documents`;
      return { numbers, documents };
    },
    [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
  };
}

async function take(sql: postgres.Sql, sequence: string, count: number, document: string): Promise<void> {
  await sql.begin(async (within) => {
    const [row] = await within`
      update sequences set next = next + ${count} where name = ${sequence} returning next - ${count} as first`;
    await within`insert into documents values (${sequence}, ${row?.first}, ${document})`;
  });
}

/** The newest installed version. */
function programDirectory(): string | undefined {
  const versions = existsSync(VERSIONS) ? readdirSync(VERSIONS) : [];
  const newest = versions.sort((one, other) => Number(other) - Number(one)).map((name) => join(VERSIONS, name, 'bin'));
  const found = which('postgres', process.env);
  return [...newest, ...(found === undefined ? [] : [dirname(found)])].find((dir) => existsSync(join(dir, 'initdb')));
}
