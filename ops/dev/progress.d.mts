/** See progress.mjs. */
export interface Progress {
  /** Writes a line that stays, without the seconds. */
  print(line: string): void;
  /** Writes a line that stays. */
  say(text: string): void;
  /** Shows what is being done. */
  step(text: string): void;
  /** Removes the line of the last step, before other output. */
  settle(): void;
}
interface Stream {
  write(text: string): unknown;
  readonly isTTY?: boolean;
  readonly columns?: number;
}
export function canRewrite(stream: { readonly isTTY?: boolean }, env: NodeJS.ProcessEnv): boolean;
export function progressOn(
  stream: Stream,
  options: { readonly env: NodeJS.ProcessEnv; readonly nowMs?: () => number },
): Progress;
export const progress: Progress;
