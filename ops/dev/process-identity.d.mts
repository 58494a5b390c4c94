export interface ProcessIdentity {
  readonly pid: number;
  /** Opaque; equal only for one and the same process. */
  readonly start: string;
}
export function parseProcStat(stat: string): { state: string; parent: number; startTicks: string };
export function processStart(pid: number): string | undefined;
export function isRunning(identity: ProcessIdentity): boolean;
export function ownIdentity(): ProcessIdentity;
