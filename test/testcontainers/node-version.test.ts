import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { ROOT } from '../../ops/dev/paths.ts';
import { requireNode } from '../../src/testcontainers/node-version.ts';

const { engines } = JSON.parse(readFileSync(join(ROOT, 'node_modules/testcontainers/package.json'), 'utf8'));
const [major = 0, minor = 0] = (/^>= ?(\d+\.\d+)$/.exec(engines.node)?.[1] ?? '').split('.').map(Number);

test.each([`${major}.${minor}.0`, `${major}.${minor + 1}.3`, `${major + 2}.0.0`])(
  'Node %s loads testcontainers',
  (version) => expect(() => requireNode(version)).not.toThrow(),
);

test.each([`${major}.${minor - 1}.9`, '20.19.5', '9.99.0'])('Node %s is refused with what to do', (version) => {
  expect(() => requireNode(version)).toThrow(
    expect.objectContaining({
      code: 'CONFIG_INVALID',
      message: expect.stringContaining(`${major}.${minor} or later, as testcontainers does, and this is ${version}: `),
    }),
  );
});
