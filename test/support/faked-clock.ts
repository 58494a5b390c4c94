import { existsSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import type { TestContext } from 'vitest';
import { ensurePrograms } from '../../ops/dev/docker-engine.ts';

const LIB = '/usr/lib';

/** The path of libfaketime for programs with threads, which depends on the machine's architecture. */
function findLibrary(): string | undefined {
  const dirs = existsSync(LIB) ? readdirSync(LIB).map((name) => join(LIB, name, 'faketime')) : [];
  return [join(LIB, 'faketime'), '/usr/lib64/faketime', ...dirs]
    .map((dir) => join(dir, 'libfaketimeMT.so.1'))
    .find((path) => existsSync(path));
}

/**
 * The wall clock of a worker's process, which the test sets: libfaketime reads it from a file each time that the
 * process reads its clock. The monotonic clock is the machine's.
 */
export class FakedClock implements Disposable {
  readonly #dir = mkdtempSync(join(tmpdir(), 'idalloc-clock-'));
  readonly #file = join(this.#dir, 'clock');
  /** The variables with which the process must be started. */
  readonly env: Readonly<Record<string, string>>;

  private constructor(library: string, offsetMs: number) {
    this.env = {
      LD_PRELOAD: library,
      FAKETIME_TIMESTAMP_FILE: this.#file,
      FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
      NO_FAKE_STAT: '1',
      TZ: 'UTC',
    };
    this.set(offsetMs);
  }

  /**
   * A clock that is off by `offsetMs`. libfaketime is installed if it is missing. If that fails, the test is skipped,
   * or fails if CI is set.
   */
  static async create({ skip }: TestContext, offsetMs = 0): Promise<FakedClock> {
    const log = (line: string) => process.stderr.write(`clock test: ${line}\n`);
    const missing = findLibrary() === undefined ? await ensurePrograms({ faketime: 'faketime' }, log) : undefined;
    const library = findLibrary();
    if (library !== undefined) return new FakedClock(library, offsetMs);
    const why = `needs libfaketime (Debian package faketime): ${missing ?? `there is none in ${LIB}`}`;
    if (process.env.CI) throw new Error(`CI is set, so the clock must be tested: ${why}`);
    return skip(why);
  }

  /** Sets the clock to the true time plus `offsetMs`. */
  set(offsetMs: number): void {
    const sign = offsetMs < 0 ? '' : '+';
    this.#write(`${sign}${(offsetMs / 1_000).toFixed(3)}`);
  }

  /** Stops the clock at a full second, which has just begun. */
  async freeze(): Promise<void> {
    await pause(1_000 - (Date.now() % 1_000));
    this.#write(new Date().toISOString().slice(0, 19).replace('T', ' '));
  }

  [Symbol.dispose](): void {
    rmSync(this.#dir, { recursive: true, force: true });
  }

  /** Replaces the file atomically: a half-written file would be another time. */
  #write(text: string): void {
    writeFileSync(`${this.#file}.new`, text);
    renameSync(`${this.#file}.new`, this.#file);
  }
}
