import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import type { ProcessIdentity } from './process-identity.mjs';

/** What the `npm start` that runs the servers of this checkout announces to the others, once the servers are ready. */
export interface Announcement {
  readonly owner: ProcessIdentity;
  readonly brokers?: string | undefined;
  readonly endpoints?: string | undefined;
  /** The variables with which a command uses these servers, once they have their topics; see development.mjs. */
  readonly commands?: Readonly<Record<string, string>>;
}

/** The file appears with its whole content, or not at all. */
export function announce(file: string, announcement: Announcement): void {
  writeFileSync(`${file}.new`, JSON.stringify(announcement));
  renameSync(`${file}.new`, file);
}

/** Undefined without an announcement, or if its process exited without removing it. */
export function readAnnouncement(file: string, owner: ProcessIdentity): Announcement | undefined {
  if (!existsSync(file)) return undefined;
  const found = JSON.parse(readFileSync(file, 'utf8')) as Announcement;
  return found.owner.pid === owner.pid && found.owner.start === owner.start ? found : undefined;
}

export function withdraw(file: string): void {
  rmSync(file, { force: true });
}
