/** No layout has an ID of 2^63 or more. */
const MAX_ID = 2n ** 63n - 1n;

/** The texts that readId accepts, for error messages. */
export const ID_TEXT_HELP = `decimal from 0 to ${MAX_ID}, 16 hexadecimal digits, or up to 16 of them after 0x`;

/**
 * Reads an ID in [0, 2^63), decimal or hexadecimal; undefined for any other text. 16 digits are hexadecimal if they
 * start with a zero or contain a letter, which makes everything that idalloc writes unambiguous.
 */
export function readId(text: string): bigint | undefined {
  const id = numberOf(text);
  return id !== undefined && id <= MAX_ID ? id : undefined;
}

function numberOf(text: string): bigint | undefined {
  if (/^0x[0-9a-f]{1,16}$/i.test(text)) return BigInt(text);
  if (/^[0-9a-f]{16}$/i.test(text) && !/^[1-9][0-9]{15}$/.test(text)) return BigInt(`0x${text}`);
  return /^[0-9]{1,19}$/.test(text) ? BigInt(text) : undefined;
}
