/**
 * Runs a function in a microtask of its own. Test runners that fake timers, as Jest does, hold up those of
 * queueMicrotask.
 */
export function inMicrotask(run: () => void): void {
  void Promise.resolve().then(run);
}
