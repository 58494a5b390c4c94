/** How far a request partition is answered. `next` <= `small`. */
export interface RequestPosition {
  /** Every request below this offset is answered. It is the committed offset. */
  readonly next: number;
  /** Every request below this offset is answered, except large ones. It is in the metadata of the committed offset. */
  readonly small: number;
}

const METADATA = /^\{"small":(?<small>\d{1,16})\}$/;

/** The metadata of a committed offset; empty when no large request waits. */
export function encodeMetadata({ next, small }: RequestPosition): string {
  return small === next ? '' : `{"small":${small}}`;
}

/**
 * The position that was committed. An offset that another tool has set has no metadata, or that of another kind, and then
 * everything from the offset on is served.
 */
export function decodePosition(next: number, metadata: string): RequestPosition {
  const small = Number(METADATA.exec(metadata)?.groups?.small ?? next);
  return { next, small: Number.isSafeInteger(small) ? Math.max(next, small) : next };
}
