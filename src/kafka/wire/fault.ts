/**
 * How a call can fail without an answer of the broker:
 *
 * - UNREACHABLE: no connection, so nothing was sent.
 * - CONNECTION_LOST: the connection ended before the answer; the broker may have executed the call.
 * - NO_ANSWER: the deadline passed; the broker may have executed the call, or may still do so.
 * - LOGIN_REFUSED: the broker rejects the login, or does not speak TLS where we do.
 * - CLOSED: this side was closed.
 * - MALFORMED_ANSWER: the broker's answer can't be decoded.
 */
export type LinkFault =
  | 'UNREACHABLE'
  | 'CONNECTION_LOST'
  | 'NO_ANSWER'
  | 'LOGIN_REFUSED'
  | 'CLOSED'
  | 'MALFORMED_ANSWER';

const LINK_FAULTS: ReadonlySet<string> = new Set([
  'UNREACHABLE',
  'CONNECTION_LOST',
  'NO_ANSWER',
  'LOGIN_REFUSED',
  'CLOSED',
  'MALFORMED_ANSWER',
] satisfies LinkFault[]);

/** Whether the call failed without an answer of the broker. */
export function isLinkFault(fault: FaultName | undefined): fault is LinkFault {
  return fault !== undefined && LINK_FAULTS.has(fault);
}

/** A link fault, or Kafka's name of an error as kafkajs spells it (`NOT_LEADER_FOR_PARTITION`). */
export type FaultName = LinkFault | (string & {});

/** A call to Kafka that failed. */
export class KafkaFault extends Error {
  readonly fault: FaultName;

  constructor(fault: FaultName, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'KafkaFault';
    this.fault = fault;
  }
}

/** The name of a KafkaFault, searched along the error's causes; undefined for any other error. */
export function faultOf(error: unknown): FaultName | undefined {
  for (let at = error, depth = 0; at instanceof Error && depth < MAX_DEPTH; at = at.cause, depth += 1) {
    if (at instanceof KafkaFault) return at.fault;
  }
  return undefined;
}

const MAX_DEPTH = 5;
