/** What calls at once, each followed by the next, reach together. */
export interface Loop {
  readonly perSecond: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
}

/** Keeps `inFlight` calls in progress for some seconds. `ask` gets the number of the call. */
export async function closedLoop(
  ask: (nth: number) => Promise<unknown>,
  inFlight: number,
  seconds: number,
): Promise<Loop> {
  const [begunMs, latenciesMs] = [performance.now(), [] as number[]];
  const untilMs = begunMs + seconds * 1_000;
  let nth = 0;
  const lane = async () => {
    for (let nowMs = performance.now(); nowMs < untilMs; ) {
      await ask(nth++);
      const doneMs = performance.now();
      latenciesMs.push(doneMs - nowMs);
      nowMs = doneMs;
    }
  };
  await Promise.all(Array.from({ length: inFlight }, lane));
  const tookMs = performance.now() - begunMs;
  latenciesMs.sort((one, other) => one - other);
  const at = (share: number) => latenciesMs[Math.floor(share * latenciesMs.length)] ?? Number.NaN;
  return { perSecond: (1_000 * latenciesMs.length) / tookMs, p50Ms: at(0.5), p99Ms: at(0.99) };
}
