import kafkajs from 'kafkajs';
import { describeError } from '../../errors.ts';
import { type FaultName, KafkaFault } from './fault.ts';
import { errorCodes } from './kafkajs-modules.ts';

const NAMES: ReadonlyMap<number, { readonly type: string; readonly message: string }> = new Map(
  errorCodes.map(({ code, type, message }) => [code, { type, message }]),
);

/** kafkajs' name of an error; `ERROR_<code>` for an unknown one, undefined for code 0. */
function faultName(code: number): FaultName | undefined {
  return code === 0 ? undefined : (NAMES.get(code)?.type ?? `ERROR_${code}`);
}

/** The error as a property of an answer. */
export function faultIn(code: number): { readonly fault?: FaultName } {
  const fault = faultName(code);
  return fault === undefined ? {} : { fault };
}

/** Throws if the whole answer is an error. */
export function requireNone(code: number): void {
  const fault = faultName(code);
  if (fault !== undefined) throw new KafkaFault(fault, NAMES.get(code)?.message ?? `error ${code} of the broker`);
}

/** Errors of the login that a call may have to wait for. */
const LOGIN_FAULTS: ReadonlySet<string> = new Set([
  'SASL_AUTHENTICATION_FAILED',
  'UNSUPPORTED_SASL_MECHANISM',
  'ILLEGAL_SASL_STATE',
]);

/** Converts the error of a call to a fault of the port. */
export function faultOfCall(error: unknown, broker: string): KafkaFault {
  const options = { cause: error };
  const detail = `${broker}: ${describeError(error)}`;
  if (error instanceof KafkaFault) return new KafkaFault(error.fault, detail, options);
  if (error instanceof kafkajs.KafkaJSSASLAuthenticationError) return new KafkaFault('LOGIN_REFUSED', detail, options);
  if (error instanceof kafkajs.KafkaJSProtocolError) {
    return new KafkaFault(LOGIN_FAULTS.has(error.type) ? 'LOGIN_REFUSED' : error.type, detail, options);
  }
  if (error instanceof kafkajs.KafkaJSConnectionError) return new KafkaFault('CONNECTION_LOST', detail, options);
  if (error instanceof kafkajs.KafkaJSServerDoesNotSupportApiKey) {
    return new KafkaFault('UNSUPPORTED_VERSION', detail, options);
  }
  return new KafkaFault('MALFORMED_ANSWER', `${broker}: an answer can't be read: ${describeError(error)}`, options);
}

/** An offset or another 64-bit number; throws MALFORMED_ANSWER if it is not a safe integer. */
export function wholeNumber(value: string | bigint): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number)) throw new KafkaFault('MALFORMED_ANSWER', `${value} is out of range`);
  return number;
}
