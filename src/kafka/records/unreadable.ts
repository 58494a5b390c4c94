/** A record batch that can never be read, with the reason. */
export class UnreadableBatch extends Error {}

/** An error in a compressed batch; the message continues "a <codec> batch …". */
export class CodecError extends UnreadableBatch {}

export function damaged(options?: ErrorOptions): UnreadableBatch {
  return new UnreadableBatch('the batch is damaged', options);
}

export function tooLarge(maxBytes: number, options?: ErrorOptions): CodecError {
  return new CodecError(`holds more than ${maxBytes} bytes`, options);
}

/** The package that decompresses a codec can't be loaded. */
export function noCodec(name: string, cause: unknown): CodecError {
  const reason = `needs the package ${name} (npm install ${name}), which is missing or not built for this platform`;
  return new CodecError(reason, { cause });
}
