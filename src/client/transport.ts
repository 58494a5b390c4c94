/** A request record as it goes out. */
export interface Outgoing {
  /** The correlation ID; as the record's key it leads each retry to the same partition. */
  readonly key: Buffer;
  readonly value: Buffer;
  readonly replyTopic: string;
  /** When it was sent first, in wall milliseconds; undefined the first time. */
  readonly firstSentMs?: number | undefined;
  /** False once nobody waits for the reply: what was not sent by then is not sent any more. */
  readonly isWanted: () => boolean;
}

/** What comes on a reply topic. */
export interface Incoming {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly replayed: boolean;
  /** What the reply says of the layout of its IDs, if anything; not verified yet. */
  readonly layoutText?: string | undefined;
}

/** The way to the workers and back. */
export interface Transport {
  /**
   * Resolves when the brokers have the request, or nobody wants it any more. Its reply is listened for from before that.
   * Rejects with IdallocError KAFKA_UNAVAILABLE, CONFIG_INVALID, TOPIC_INVALID or QUEUE_FULL.
   */
  send(request: Outgoing): Promise<void>;
  /** Ends all connections within a second; never rejects. */
  close(): Promise<void>;
}

/** Where a transport reports what happens. */
export interface TransportEvents {
  readonly onReply: (reply: Incoming) => void;
  /** A passing fault; the transport goes on. */
  readonly onFault: (error: Error) => void;
}
