const MAX_ID = 2n ** 64n - 1n;

/** What readId takes, for whoever has to refuse a text. */
export const ID_TEXT_HELP = `decimal from 0 to ${MAX_ID}, 16 hexadecimal digits, or up to 16 of them after 0x`;

/**
 * An ID from [0, 2^64) as people and programs write it; undefined for any other text. Of 16 digits that could be either,
 * a leading zero or a letter makes them hexadecimal: so all forms that idalloc itself writes are read as they were meant.
 */
export function readId(text: string): bigint | undefined {
  if (/^0x[0-9a-f]{1,16}$/i.test(text)) return BigInt(text);
  if (/^[0-9a-f]{16}$/i.test(text) && !/^[1-9][0-9]{15}$/.test(text)) return BigInt(`0x${text}`);
  return /^[0-9]{1,20}$/.test(text) && BigInt(text) <= MAX_ID ? BigInt(text) : undefined;
}
