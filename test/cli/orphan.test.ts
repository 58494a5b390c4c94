import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { afterEach, beforeEach, expect, onTestFinished, test } from 'vitest';

const MAIN = join(import.meta.dirname, '../../src/main.ts');
/** Nothing listens there, so the worker waits for Kafka. */
const NOWHERE = '127.0.0.1:1';

let dir = '';
beforeEach(() => {
  dir = mkdtempSync(join(tmpdir(), 'idalloc-orphan-'));
});
afterEach(() => rmSync(dir, { recursive: true }));

/**
 * Starts a worker below a shell, whose first line is the worker's process ID. Ending the shell leaves the worker
 * behind.
 */
function startBelowShell() {
  const env = {
    PATH: process.env.PATH,
    NODE_COMPILE_CACHE: join(dir, 'compiled'),
    npm_command: 'exec',
    ...{ KAFKA_BROKERS: NOWHERE, ETCD_ENDPOINTS: `http://${NOWHERE}`, DATACENTER_ID: '0' },
    ...{ INDEX_DIR: join(dir, 'index'), API_PORT: 'off', OPS_PORT: '0' },
  };
  const script = '"$0" "$1" worker & echo "{\\"pid\\":$!}"; wait';
  const shell = spawn('sh', ['-c', script, process.execPath, MAIN], { env, stdio: ['ignore', 'pipe', 'ignore'] });
  return { shell, lines: createInterface({ input: shell.stdout }) };
}

test.skipIf(process.platform === 'win32')(
  'a worker of npx stops in order when the shell of npx has ended',
  async () => {
    const { shell, lines } = startBelowShell();
    const seen: string[] = [];
    let worker: number | undefined;
    onTestFinished(() => {
      if (seen.at(-1) !== 'stopped' && worker !== undefined) process.kill(worker, 'SIGKILL');
    });
    for await (const line of lines) {
      const { pid, msg } = JSON.parse(line) as { pid?: number; msg?: string };
      if (msg === undefined) worker = pid;
      else seen.push(msg);
      if (msg === 'health and metrics are served') shell.kill('SIGTERM');
    }
    expect(shell.signalCode).toBe('SIGTERM');
    expect(seen).toContain('stopping: finishing the requests in progress');
    expect(seen.at(-1)).toBe('stopped');
  },
);
