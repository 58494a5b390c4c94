/**
 * What can go wrong with a call, beside the broker's own answer:
 *
 * - UNREACHABLE: no connection, so nothing was sent.
 * - CONNECTION_LOST: the connection ended before the answer; the broker may have done what was asked.
 * - NO_ANSWER: the deadline passed; the broker may have done, or may still do, what was asked.
 * - LOGIN_REFUSED: the broker does not take the login, or speaks no TLS where we do.
 * - CLOSED: our own side was closed.
 * - MALFORMED_ANSWER: the broker's answer can't be read.
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

/** Whether no answer of a broker stands behind the fault. */
export function isLinkFault(fault: FaultName | undefined): fault is LinkFault {
  return fault !== undefined && LINK_FAULTS.has(fault);
}

/** A link fault, or Kafka's own name of an error as kafkajs spells it (`NOT_LEADER_FOR_PARTITION`). */
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

/** The name of a fault, also below other errors that have it as their cause; undefined for any other error. */
export function faultOf(error: unknown): FaultName | undefined {
  for (let at = error, depth = 0; at instanceof Error && depth < MAX_DEPTH; at = at.cause, depth += 1) {
    if (at instanceof KafkaFault) return at.fault;
  }
  return undefined;
}

const MAX_DEPTH = 5;
