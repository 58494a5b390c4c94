/** The result, or undefined if `work` throws: what an operator's SDK does must not disturb the requests. */
export function attempt<T>(onError: (error: unknown) => void, work: () => T): T | undefined {
  try {
    return work();
  } catch (error) {
    onError(error);
    return undefined;
  }
}
