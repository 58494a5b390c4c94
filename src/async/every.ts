import type { Runtime, Timer } from './runtime.ts';

/** Repeats the work, each time `pauseMs` after it has ended, until it is disposed. The work handles its own errors. */
export function every(
  runtime: Pick<Runtime, 'schedule'>,
  pauseMs: number,
  work: () => void | Promise<void>,
): Disposable {
  let isOver = false;
  let timer: Timer | undefined;
  const schedule = (): void => {
    timer = runtime.schedule(pauseMs, () => void run());
  };
  const run = async (): Promise<void> => {
    await work();
    if (!isOver) schedule();
  };
  schedule();
  return {
    [Symbol.dispose]: () => {
      isOver = true;
      timer?.cancel();
    },
  };
}
