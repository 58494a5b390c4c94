/** A request record to send. */
export interface OutgoingRequest {
  /**
   * What names the request in the ledger, or the name of a sequence. As the record's key, it sends each retry to the
   * partition that decides.
   */
  readonly key: Buffer;
  readonly value: Buffer;
  readonly replyTopic: string;
  /** Wall milliseconds of the first send; undefined the first time. */
  readonly firstSentMs?: number | undefined;
  /** Besides the transport's own. */
  readonly headers?: Readonly<Record<string, string>> | undefined;
  /** False once no caller waits for the reply: an unsent request is dropped then. */
  readonly isWanted: () => boolean;
}

/** A record of a reply topic. */
export interface IncomingReply {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly replayed: boolean;
  /** The layout text in the reply's headers, if any; not verified yet. */
  readonly layoutText?: string | undefined;
  /** Of a refusal, if its sender knows when a retry may succeed. */
  readonly retryAfterMs?: number | undefined;
}

/** Sends requests to the workers and receives their replies. */
export interface Transport {
  /**
   * Resolves when the brokers have the request, or it is no longer wanted. Replies are read from before that on.
   * Rejects with IdallocError KAFKA_UNAVAILABLE, CONFIG_INVALID, TOPIC_INVALID or QUEUE_FULL.
   */
  send(request: OutgoingRequest): Promise<void>;
  /** The partition of the request topic for requests with this key; undefined before the first one is sent. */
  partitionOf(key: Buffer): number | undefined;
  /** Why replies on this topic can't be read now; undefined while they can, as far as is known. */
  trouble(replyTopic: string): string | undefined;
  /** Closes all connections within a second; never rejects. */
  close(): Promise<void>;
}

/** Events of a transport. */
export interface TransportEvents {
  readonly onReply: (reply: IncomingReply) => void;
  /**
   * Replies on this topic may be lost, or go where they are no longer read from: what waits for one must be sent again
   * now. It is then sent with the new partition, or fails with the reason.
   */
  readonly onMoved: (replyTopic: string) => void;
  /** A transient error; the transport retries. */
  readonly onError: (error: Error) => void;
}
