import { describeError, IdallocError } from '../../errors.ts';
import { KafkaError, type KafkaErrorCode } from './kafka-error.ts';
import { errorClasses, errorCodes } from './kafkajs-modules.ts';

const NAMES: ReadonlyMap<number, { readonly type: string; readonly message: string }> = new Map(
  errorCodes.map(({ code, type, message }) => [code, { type, message }]),
);

/** kafkajs' name of an error; `ERROR_<code>` for an unknown one, undefined for code 0. */
export function errorCodeOf(code: number): KafkaErrorCode | undefined {
  return code === 0 ? undefined : (NAMES.get(code)?.type ?? `ERROR_${code}`);
}

/** Throws if the whole response is an error. */
export function requireSuccess(code: number): void {
  const errorCode = errorCodeOf(code);
  if (errorCode !== undefined)
    throw new KafkaError(errorCode, NAMES.get(code)?.message ?? `error ${code} of the broker`);
}

/** Errors of the login that a call may have to wait for. */
const LOGIN_ERRORS: ReadonlySet<string> = new Set([
  'SASL_AUTHENTICATION_FAILED',
  'UNSUPPORTED_SASL_MECHANISM',
  'ILLEGAL_SASL_STATE',
]);

/** Converts the error of a call to an error of the port. */
export function callError(error: unknown, broker: string): KafkaError {
  const options = { cause: error };
  const detail = `${broker}: ${describeError(error)}`;
  if (error instanceof KafkaError) return new KafkaError(error.errorCode, detail, options);
  // The settings hold no login any more.
  if (error instanceof IdallocError) return new KafkaError('LOGIN_REFUSED', detail, options);
  if (error instanceof errorClasses.KafkaJSSASLAuthenticationError)
    return new KafkaError('LOGIN_REFUSED', detail, options);
  if (error instanceof errorClasses.KafkaJSProtocolError) {
    return new KafkaError(LOGIN_ERRORS.has(error.type) ? 'LOGIN_REFUSED' : error.type, detail, options);
  }
  if (error instanceof errorClasses.KafkaJSConnectionError) return new KafkaError('CONNECTION_LOST', detail, options);
  if (error instanceof errorClasses.KafkaJSServerDoesNotSupportApiKey) {
    return new KafkaError('UNSUPPORTED_VERSION', detail, options);
  }
  return new KafkaError('MALFORMED_RESPONSE', `${broker}: a response can't be read: ${describeError(error)}`, options);
}

/** An offset or another 64-bit number; throws MALFORMED_RESPONSE if it is not a safe integer. */
export function safeInteger(value: string | bigint): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number)) throw new KafkaError('MALFORMED_RESPONSE', `${value} is out of range`);
  return number;
}
