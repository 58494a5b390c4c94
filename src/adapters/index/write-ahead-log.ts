import { closeSync, fdatasync, openSync, statSync } from 'node:fs';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { promisify } from 'node:util';

/** Resolves when what was written to an open file is on its disk. */
export type SyncFile = (descriptor: number) => Promise<void>;

export const syncData: SyncFile = promisify(fdatasync);

/**
 * Syncs what a database has committed to its write-ahead log, which SQLite itself syncs at checkpoints only. The sync
 * takes place in another thread: SQLite's own, at each commit, would block the process while the disk works.
 *
 * It needs a descriptor of its own. One of the database file would be wrong: closing it would release the locks that
 * SQLite has on that file. SQLite has no locks on the log. While the database is open the log stays one file: SQLite
 * writes it from the start again after a checkpoint, which has synced everything before, and deletes it when the
 * database is closed.
 */
export class WriteAheadLog {
  readonly inode: number;
  readonly #descriptor: number;
  readonly #sync: SyncFile;
  readonly #countChanges: StatementSync;
  /** What was committed by then is on disk. Below zero at first: what a killed process has left may not be. */
  #syncedChanges = -1;
  #running = 0;
  #isClosed = false;

  constructor(db: DatabaseSync, file: string, sync: SyncFile) {
    this.#countChanges = db.prepare('SELECT total_changes() AS n');
    this.inode = statSync(file).ino;
    this.#descriptor = openSync(file, 'r+'); // Windows syncs writable files only
    this.#sync = sync;
  }

  /** Resolves when everything committed before the call is on disk. */
  async sync(): Promise<void> {
    const changes = Number(this.#countChanges.get()?.n);
    if (changes === this.#syncedChanges) return;
    this.#running += 1;
    try {
      await this.#sync(this.#descriptor);
      this.#syncedChanges = changes;
    } finally {
      this.#running -= 1;
      this.#closeIfUnused();
    }
  }

  /** Before the database is closed. A sync in progress keeps the descriptor, whose number another file would get. */
  close(): void {
    this.#isClosed = true;
    this.#closeIfUnused();
  }

  #closeIfUnused(): void {
    if (this.#isClosed && this.#running === 0) closeSync(this.#descriptor);
  }
}
