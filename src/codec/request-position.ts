/** How far a request partition is answered. `next` <= `small`. */
export interface RequestPosition {
  /** Every request below this offset is answered. It is the committed offset. */
  readonly next: number;
  /** Every request below this offset is answered, except large ones. It is in the metadata of the committed offset. */
  readonly small: number;
}

/** A record that was read. By it a later reader notices that the log has lost it, even if another record is at its offset now. */
export interface LastRead {
  readonly offset: number;
  readonly timestampMs: number;
  /** Equal for equal records; letters, digits, `+`, `/` and `=` only. */
  readonly digest: string;
}

/** A position as it is committed, with the last record below `small`, if that is known. */
export interface CommittedPosition extends RequestPosition {
  readonly last?: LastRead | undefined;
}

const METADATA =
  /^\{(?:"small":(?<small>\d{1,16}))?,?(?:"last":\[(?<offset>\d{1,16}),(?<timestampMs>\d{1,16}),"(?<digest>[\w+/=]{1,64})"\])?\}$/;

/** The metadata of a committed offset; empty when there is nothing to say. */
export function encodeMetadata({ next, small, last }: CommittedPosition): string {
  const fields = {
    ...(small !== next && { small }),
    ...(last !== undefined && { last: [last.offset, last.timestampMs, last.digest] }),
  };
  return Object.keys(fields).length === 0 ? '' : JSON.stringify(fields);
}

/**
 * The position that was committed. An offset that another tool has set has no metadata, or that of another kind, and then
 * everything from the offset on is served.
 */
export function decodePosition(next: number, metadata: string): CommittedPosition {
  const found = METADATA.exec(metadata)?.groups;
  if (found === undefined) return { next, small: next };
  const small = Math.max(next, Number(found.small ?? next));
  const [offset, timestampMs] = [Number(found.offset), Number(found.timestampMs)];
  const { digest } = found;
  const last = digest !== undefined && offset < small ? { offset, timestampMs, digest } : undefined;
  return { next, small, last };
}
