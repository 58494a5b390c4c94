import { afterAll, beforeAll, describe, test } from 'vitest';
import { IdClient } from '../../src/client/client.ts';
import { type Postgres, startPostgres } from '../bench/postgres.ts';
import { BESIDE, type Db, MIGRATIONS, NUMBERS } from '../support/migration-page.ts';
import { Realm } from '../support/realm.ts';
import { suiteServers } from '../support/servers.ts';

const server: Postgres | undefined = await startPostgres(1);
let realm: Realm;
let client: IdClient;

/** One connection, so that a transaction of the page is one. */
function dbOf({ sql }: Postgres): Db {
  return {
    query: async (text, values = []) => ({ rows: [...(await sql.unsafe(text, [...values] as never[]))] }),
    exec: (text) => sql.unsafe(text).simple(),
  };
}

afterAll(() => server?.[Symbol.asyncDispose]());

describe.skipIf(server === undefined)('docs/how-to/migrate.md, with PostgreSQL and a worker', () => {
  beforeAll(async () => {
    realm = await Realm.create(suiteServers(), { env: BESIDE });
    await realm.worker().ready();
    await realm.command(['sequence', 'create', NUMBERS.name ?? '', '--start', NUMBERS.start ?? '']);
    const { replyTopic, requestTopic } = realm;
    client = await IdClient.connect({ brokers: suiteServers().brokers, replyTopic, requestTopic });
    return async () => {
      await client.close();
      await realm[Symbol.asyncDispose]();
    };
  });

  test.for(MIGRATIONS)('%s', async ([, follow]) => {
    if (server !== undefined) await follow(dbOf(server), client);
  });
});
