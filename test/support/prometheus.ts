import type { TestContext } from 'vitest';
import { ensurePrograms } from '../../ops/dev/docker-engine.ts';

/**
 * Makes sure that Prometheus and promtool are installed. If they are not, and can't be, the test is skipped, or fails if CI is
 * set.
 */
export async function requirePrometheus({ skip }: Pick<TestContext, 'skip'>): Promise<void> {
  const log = (line: string) => process.stderr.write(`prometheus: ${line}\n`);
  const missing = await ensurePrograms({ prometheus: 'prometheus', promtool: 'prometheus' }, log);
  if (missing === undefined) return;
  if (process.env.CI) throw new Error(`CI is set, so the rules must be tested: ${missing}`);
  skip(missing);
}
