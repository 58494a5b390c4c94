import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { developmentServers } from '../../ops/dev/development.mjs';
import { ownIdentity } from '../../ops/dev/process-identity.mjs';
import { announce } from '../../ops/dev/servers.ts';

const COMMANDS = { KAFKA_BROKERS: '127.0.0.1:9092', ETCD_ENDPOINTS: 'http://127.0.0.1:2379', DATACENTER_ID: '0' };

let dir = '';
let file = '';
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'idalloc-development-'));
  file = join(dir, 'servers.json');
});
afterEach(() => rmSync(dir, { recursive: true }));

test('a command uses the servers of the npm start that runs, and keeps what the user has set', () => {
  announce(file, { owner: ownIdentity(), commands: COMMANDS });
  expect(developmentServers(file, {})).toEqual({ variables: COMMANDS });
  const { DATACENTER_ID: _, ...others } = COMMANDS;
  expect(developmentServers(file, { DATACENTER_ID: '3', KAFKA_BROKERS: '' })).toEqual({ variables: others });
});

test.each(['KAFKA_BROKERS', 'ETCD_ENDPOINTS'])('a command with %s uses no servers but those that it names', (name) => {
  announce(file, { owner: ownIdentity(), commands: COMMANDS });
  expect(developmentServers(file, { [name]: 'kafka-1:9092' })).toBeUndefined();
});

test('a file of a process that is gone is not used, and the remedy is npm start', () => {
  const pid = Number(execFileSync(process.execPath, ['-p', 'process.pid'], { encoding: 'utf8' }));
  announce(file, { owner: { pid, start: 'then' }, commands: COMMANDS });
  expect(developmentServers(file, {})).toEqual({ missing: expect.stringMatching(/has ended: run `npm start`/) });
  announce(file, { owner: { ...ownIdentity(), start: 'another process had this pid' }, commands: COMMANDS });
  expect(developmentServers(file, {})).toHaveProperty('missing');
});

test('without a file, or while its servers get ready, there are none', () => {
  expect(developmentServers(file, {})).toEqual({ missing: expect.stringMatching(/runs: run `npm start`/) });
  announce(file, { owner: ownIdentity() });
  expect(developmentServers(file, {})).toEqual({ missing: expect.stringContaining('try again in a moment') });
  for (const text of ['', 'null', '{}', '{"owner":7}']) {
    writeFileSync(file, text);
    expect(developmentServers(file, {})).toEqual({ missing: expect.stringContaining('npm start') });
  }
});
