import { join } from 'node:path';
import type { CapacityData, Form, IndexSize } from '../../../ops/capacity/data.ts';
import { run } from '../../../ops/dev/run.ts';
import type { Effort } from './serving.ts';

const ENTRIES = [100_000, 300_000, 1_000_000, 3_000_000];
const TIMEOUT_MS = 600_000;

/** What a benchmark of this tree prints with --json, in a process of its own. */
async function printed(file: string, ...args: readonly string[]): Promise<unknown> {
  const path = join(import.meta.dirname, '..', file);
  const command = { command: process.execPath, args: [path, '--json', ...args] };
  return JSON.parse(await run({ ...command, purpose: `test/bench/${file}`, timeoutMs: TIMEOUT_MS }));
}

/** Memory and disk of the index by entries. */
export async function index({ scale, say }: Effort): Promise<readonly IndexSize[]> {
  const sizes: IndexSize[] = [];
  for (const wanted of ENTRIES) {
    const args = ['--entries', String(Math.round(wanted * scale)), '--partitions', '12'];
    const found = (await printed('index.ts', ...args)) as Readonly<Record<string, number>>;
    const of = (name: string) => found[name] ?? Number.NaN;
    const size = {
      entries: of('entries'),
      diskBytesPerEntry: of('disk_bytes_per_entry'),
      memoryBytesPerEntry: of('memory_bytes_per_entry'),
      restorePerS: of('restore_entries_per_s'),
    };
    say(JSON.stringify(size));
    sizes.push(size);
  }
  return sizes;
}

/** What it costs to write and to read an ID in each form. */
export async function forms({ scale }: Effort): Promise<CapacityData['forms']> {
  const args = ['--ms', String(Math.max(1, Math.round(50 * scale))), '--rounds', '3'];
  const found = (await printed('forms.ts', ...args)) as readonly Form[];
  return found.map(({ form, formatNs, parseNs }) => ({ form, formatNs, parseNs }));
}
