/**
 * What each of Kafka's error codes means to whoever made the call.
 *
 * Every loop over Kafka asks the same few questions of an error. Is it worth another try? Does somebody else lead the
 * partition now, or coordinate the group? Can the write still happen? Or is something refused, so that only a person
 * can help? The trap is to answer them where they come up: each place then lists the codes that it has met so far, the
 * lists disagree, and a code that one loop survives ends another.
 *
 * So a code is described here once, by properties that are independent of each other, and each loop asks for the
 * property that it depends on. A code that is not in the table means nothing to us: no loop retries it, and none gives
 * up a leader or a membership for it. The names are Kafka's as kafkajs spells them, or ours.
 */
export interface ErrorMeaning {
  /** The call failed without a usable response from the broker. */
  readonly isLink?: true;
  /** It passes by itself: of one broker, of an election, or of a topic that not all brokers know yet. */
  readonly isTransient?: true;
  /** The broker does not lead the partition, or not safely: the cached leader must not be used again. */
  readonly leaderMoved?: true;
  /** The broker does not coordinate the group, or has not loaded it yet. */
  readonly coordinatorMoved?: true;
  /**
   * A write is not executed any more, so a retry can't overtake it. It may be in the log already: a leader that is
   * deposed while it waits for its followers reports NOT_LEADER_FOR_PARTITION, and the next leader may have it. So a
   * retry may write a second copy, and only writes that tolerate one are retried.
   */
  readonly writeIsOver?: true;
  /** The topic or partition does not exist, as far as this broker knows. */
  readonly isAbsent?: true;
  /** The topic can't take records until a leader is elected, a replica returns, or a broker knows all partitions. */
  readonly isWeak?: true;
  /** What becomes of the member of a group: it joins again, it was removed, or another process has taken its place. */
  readonly member?: 'rejoins' | 'expelled' | 'fenced';
  /** What the brokers refuse until a person changes something, so that waiting does not help. */
  readonly refuses?: 'login' | 'version' | 'cluster' | 'topic' | 'group' | 'record';
  /** The broker does not keep the fetch session as the reader knows it: it has dropped it, or missed a fetch of it. */
  readonly sessionIsOver?: true;
  /** It is refused for want of a right. */
  readonly isDenied?: true;
}

export const ERROR_CODES = {
  // Calls without a usable response. The names are ours.
  /** There is no connection, so nothing was sent. */
  UNREACHABLE: { isLink: true, isTransient: true, writeIsOver: true },
  /** The connection ended before the response. The broker may have executed the call. */
  CONNECTION_LOST: { isLink: true, isTransient: true },
  /** The deadline passed. The broker may have executed the call, or may still do so. */
  NO_RESPONSE: { isLink: true, isTransient: true },
  /** The broker rejects the login, or does not speak TLS where we do. */
  LOGIN_REFUSED: { isLink: true, refuses: 'login' },
  /** This side was closed. */
  CLOSED: { isLink: true },
  /** The response can't be decoded. */
  MALFORMED_RESPONSE: { isLink: true },

  // Leaders and replicas.
  NOT_LEADER_FOR_PARTITION: { isTransient: true, leaderMoved: true, writeIsOver: true },
  LEADER_NOT_AVAILABLE: { isTransient: true, leaderMoved: true, writeIsOver: true, isWeak: true },
  UNKNOWN_TOPIC_OR_PARTITION: { isTransient: true, leaderMoved: true, writeIsOver: true, isAbsent: true },
  /** The metadata lack a partition of the topic, as when a broker is just learning of it. The name is ours. */
  PARTITIONS_MISSING: { isTransient: true, writeIsOver: true, isWeak: true },
  REPLICA_NOT_AVAILABLE: { isTransient: true, leaderMoved: true },
  FENCED_LEADER_EPOCH: { isTransient: true, leaderMoved: true },
  UNKNOWN_LEADER_EPOCH: { isTransient: true, leaderMoved: true },
  /** The leader's disk has failed. */
  KAFKA_STORAGE_ERROR: { isTransient: true, leaderMoved: true },
  /** A broker lost its connection to another one. */
  NETWORK_EXCEPTION: { isTransient: true, leaderMoved: true },
  NOT_ENOUGH_REPLICAS: { isTransient: true, writeIsOver: true, isWeak: true },
  /** The record is in the log, though fewer replicas than required have it. */
  NOT_ENOUGH_REPLICAS_AFTER_APPEND: { isTransient: true, isWeak: true },
  /** The followers took too long. The record may be in the log. */
  REQUEST_TIMED_OUT: { isTransient: true },
  /** A new leader does not know yet how far its followers are. */
  OFFSET_NOT_AVAILABLE: { isTransient: true },
  FETCH_SESSION_ID_NOT_FOUND: { isTransient: true, sessionIsOver: true },
  INVALID_FETCH_SESSION_EPOCH: { isTransient: true, sessionIsOver: true },
  BROKER_NOT_AVAILABLE: { isTransient: true },
  NOT_CONTROLLER: { isTransient: true },

  // Groups.
  GROUP_LOAD_IN_PROGRESS: { isTransient: true, coordinatorMoved: true },
  GROUP_COORDINATOR_NOT_AVAILABLE: { isTransient: true, coordinatorMoved: true },
  NOT_COORDINATOR_FOR_GROUP: { isTransient: true, coordinatorMoved: true },
  /** All members must join again. */
  REBALANCE_IN_PROGRESS: { member: 'rejoins' },
  /** The group has no member of this ID. */
  UNKNOWN_MEMBER_ID: { member: 'expelled' },
  /** The group continues in a generation that this member has not joined. */
  ILLEGAL_GENERATION: { member: 'expelled' },
  /** Another process has joined with the same instance ID. */
  FENCED_INSTANCE_ID: { member: 'fenced' },
  GROUP_AUTHORIZATION_FAILED: { refuses: 'group', isDenied: true },
  GROUP_MAX_SIZE_REACHED: { refuses: 'group' },
  INVALID_GROUP_ID: { refuses: 'group' },
  /** The session is outside of the brokers' limits. */
  INVALID_SESSION_TIMEOUT: { refuses: 'group' },
  /** The group has consumers of another kind. */
  INCONSISTENT_GROUP_PROTOCOL: { refuses: 'group' },
  /** A consumer of another kind has changed how the group assigns partitions. The name is ours. */
  FOREIGN_MEMBER: { refuses: 'group' },

  // Topics and records.
  INVALID_TOPIC_EXCEPTION: { refuses: 'topic', isAbsent: true },
  TOPIC_AUTHORIZATION_FAILED: { refuses: 'topic', isDenied: true },
  MESSAGE_TOO_LARGE: { refuses: 'record' },
  RECORD_LIST_TOO_LARGE: { refuses: 'record' },
  INVALID_RECORD: { refuses: 'record' },
  /** The topic takes no record of that time. */
  INVALID_TIMESTAMP: { refuses: 'record' },

  // Logins, rights and versions.
  SASL_AUTHENTICATION_FAILED: { refuses: 'login' },
  UNSUPPORTED_SASL_MECHANISM: { refuses: 'login' },
  ILLEGAL_SASL_STATE: { refuses: 'login' },
  CLUSTER_AUTHORIZATION_FAILED: { refuses: 'cluster', isDenied: true },
  /** The brokers have no authorizer, so there are no rights to grant. */
  SECURITY_DISABLED: { refuses: 'cluster' },
  UNSUPPORTED_VERSION: { refuses: 'version' },

  // These mean something to one call only, which asks for them by name.
  OFFSET_OUT_OF_RANGE: {},
  TOPIC_ALREADY_EXISTS: {},
  INVALID_CONFIG: {},
  INVALID_REQUEST: {},
  POLICY_VIOLATION: {},
  GROUP_ID_NOT_FOUND: {},
  MEMBER_ID_REQUIRED: {},
  /** The reader of a log threw. The name is ours. */
  SINK_FAILED: {},
  /** An error that is not Kafka's was caught where one of Kafka's was expected. The name is ours. */
  UNEXPECTED: {},
} as const satisfies Readonly<Record<string, ErrorMeaning>>;

export type KnownErrorCode = keyof typeof ERROR_CODES;

/** The codes by which brokers refuse a thing, for a reason other than a right. */
export type RefusalCode<What extends ErrorMeaning['refuses']> = {
  [Code in KnownErrorCode]: (typeof ERROR_CODES)[Code] extends { refuses: What; isDenied?: never } ? Code : never;
}[KnownErrorCode];

const MEANINGS: ReadonlyMap<string, ErrorMeaning> = new Map(Object.entries(ERROR_CODES));
const UNKNOWN: ErrorMeaning = Object.freeze({});

/** What an error code means; nothing for one that is not in the table, and for undefined, which is no error. */
export function meaningOf(errorCode: string | undefined): ErrorMeaning {
  return (errorCode === undefined ? undefined : MEANINGS.get(errorCode)) ?? UNKNOWN;
}

/** Whether the call failed without a usable response from the broker. */
export function isLinkError(errorCode: string | undefined): boolean {
  return meaningOf(errorCode).isLink === true;
}

/** Whether no coordinator answered that knows the group. */
export function isUncoordinated(errorCode: string | undefined): boolean {
  const { isLink, coordinatorMoved } = meaningOf(errorCode);
  return isLink === true || coordinatorMoved === true;
}

/** Whether this user can't use the topic: it does not exist, may not be called so, or the right to it is missing. */
export function isUnusableTopic(errorCode: string | undefined): boolean {
  const { isAbsent, refuses } = meaningOf(errorCode);
  return isAbsent === true || refuses === 'topic';
}
