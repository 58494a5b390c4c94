import { wallMs } from '../../src/core/units.ts';
import type { Allocation, Allocator } from '../../src/pipeline/ports.ts';

/** Allocates consecutive, unique runs of IDs, and counts them. */
export class CountingAllocator implements Allocator {
  readonly workerId: number;
  readonly asked: number[] = [];
  /** Awaited before each allocation, which fails with its rejection. */
  before: () => Promise<void> = async () => {};
  #next: bigint;

  constructor(workerId: number) {
    this.workerId = workerId;
    this.#next = BigInt(workerId) * 1_000_000_000n;
  }

  /** Whether the current term is that of all allocations so far. */
  isSameTerm = true;

  holds(): boolean {
    return this.isSameTerm;
  }

  async allocate(counts: readonly number[]): Promise<readonly Allocation[]> {
    await this.before();
    return counts.map((count) => {
      const first = this.#next;
      this.#next += BigInt(count);
      this.asked.push(count);
      const fence = BigInt(this.workerId + 1);
      return { ranges: [{ first, count }], workerId: this.workerId, fence, generatedAt: wallMs(1_700_000_000_000) };
    });
  }
}
