import { expect, it } from 'vitest';
import { SecretFile } from '../../src/config/secret-file.ts';
import type { Log } from '../../src/log.ts';
import { SecretWatch } from '../../src/worker/secret-watch.ts';
import { VirtualRuntime } from '../support/virtual-runtime.ts';

it('reports once that a secret was replaced, and once that its file is not valid', async () => {
  const runtime = new VirtualRuntime();
  let content = 'first';
  const check = (text: string) => (text === '' ? { problem: 'is empty' } : { text });
  const file = new SecretFile('KAFKA_SASL_PASSWORD_FILE', '/f', content, () => content, check);
  const lines: string[] = [];
  const line = (level: string) => (fields: object, message: string) =>
    lines.push(`${level}: ${message} ${JSON.stringify(fields)}`);
  const log = { info: line('info'), error: line('error') } as unknown as Log;
  using _ = new SecretWatch([file], runtime, log);
  for (content of ['first', 'second', 'second', '', '', 'third']) await runtime.until(runtime.sleep(5_000));
  expect(lines.map((each) => each.split(' ')[0])).toEqual(['info:', 'error:', 'info:']);
  expect(lines[1]).toMatch(/KAFKA_SASL_PASSWORD_FILE.*is empty/);
  expect(lines.join()).not.toMatch(/first|second|third/);
});
