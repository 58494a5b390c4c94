import { killAll } from './child.ts';

/** Ctrl-C reaches this process from the terminal, and again from npm, which passes it on. */
const SAME_SIGNAL_MS = 1_000;

/**
 * Aborted by the first SIGINT, SIGTERM or SIGHUP, when the process that waits for this one has ended, and when the
 * reader of the output has exited, as after `| head -1`. A second signal kills all children and ends this process.
 */
export function stopSignal(onStop: () => void): AbortSignal {
  const controller = new AbortController();
  let firstAt = 0;
  const stop = () => {
    if (controller.signal.aborted) {
      if (performance.now() - firstAt < SAME_SIGNAL_MS) return;
      killAll();
      process.exit(130);
    }
    firstAt = performance.now();
    controller.abort(new Error('interrupted'));
    onStop();
  };
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) process.on(name, stop);
  if (process.connected) process.once('disconnect', stop);
  const unread = () => {
    if (!controller.signal.aborted) stop();
  };
  process.stdout.on('error', unread);
  process.stderr.on('error', unread);
  return controller.signal;
}
