/** A request record as it goes out. */
export interface Outgoing {
  /** The correlation ID; as the record's key it leads each retry to the same partition. */
  readonly key: Buffer;
  readonly value: Buffer;
  readonly replyTopic: string;
}

/** What comes on a reply topic. */
export interface Incoming {
  readonly key: Buffer;
  readonly value: Buffer;
  readonly replayed: boolean;
}

/** The way to the workers and back. */
export interface Transport {
  /**
   * Resolves when the brokers have the request; from before that on, its reply is listened for.
   * Rejects with IdallocError KAFKA_UNAVAILABLE, TOPIC_INVALID or QUEUE_FULL.
   */
  send(request: Outgoing): Promise<void>;
  /** Bounded in time; never rejects. */
  close(): Promise<void>;
}

/** Whom a transport tells what happens. */
export interface TransportEvents {
  readonly onReply: (reply: Incoming) => void;
  /** A fault that is being mended; nobody has to act on one of them. */
  readonly onFault: (error: Error) => void;
}
