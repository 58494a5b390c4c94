import kafkajs from 'kafkajs';
import { describeError } from '../../errors.ts';
import { type FaultName, KafkaFault } from './fault.ts';
import { errorCodes } from './kafkajs-modules.ts';

const NAMES: ReadonlyMap<number, { readonly type: string; readonly message: string }> = new Map(
  errorCodes.map(({ code, type, message }) => [code, { type, message }]),
);

/** kafkajs' name of an error; `ERROR_<code>` for those that it does not know yet, undefined for none. */
function faultName(code: number): FaultName | undefined {
  return code === 0 ? undefined : (NAMES.get(code)?.type ?? `ERROR_${code}`);
}

/** The same as the property of an answer. */
export function faultIn(code: number): { readonly fault?: FaultName } {
  const fault = faultName(code);
  return fault === undefined ? {} : { fault };
}

/** Throws where an answer as a whole is an error. */
export function requireNone(code: number): void {
  const fault = faultName(code);
  if (fault !== undefined) throw new KafkaFault(fault, NAMES.get(code)?.message ?? `error ${code} of the broker`);
}

/** Of the login that a call may have to wait for. */
const LOGIN_FAULTS: ReadonlySet<string> = new Set([
  'SASL_AUTHENTICATION_FAILED',
  'UNSUPPORTED_SASL_MECHANISM',
  'ILLEGAL_SASL_STATE',
]);

/** What a call failed with, as the port has it. */
export function faultOfCall(error: unknown, broker: string): KafkaFault {
  const options = { cause: error };
  const said = `${broker}: ${describeError(error)}`;
  if (error instanceof KafkaFault) return new KafkaFault(error.fault, said, options);
  if (error instanceof kafkajs.KafkaJSSASLAuthenticationError) return new KafkaFault('LOGIN_REFUSED', said, options);
  if (error instanceof kafkajs.KafkaJSProtocolError) {
    return new KafkaFault(LOGIN_FAULTS.has(error.type) ? 'LOGIN_REFUSED' : error.type, said, options);
  }
  if (error instanceof kafkajs.KafkaJSConnectionError) return new KafkaFault('CONNECTION_LOST', said, options);
  if (error instanceof kafkajs.KafkaJSServerDoesNotSupportApiKey) {
    return new KafkaFault('UNSUPPORTED_VERSION', said, options);
  }
  return new KafkaFault('MALFORMED_ANSWER', `${broker}: an answer can't be read: ${describeError(error)}`, options);
}

/** An offset, or another number of 64 bits; throws MALFORMED_ANSWER beyond what is exact here. */
export function wholeNumber(value: string | bigint): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number)) throw new KafkaFault('MALFORMED_ANSWER', `${value} is beyond all offsets`);
  return number;
}
