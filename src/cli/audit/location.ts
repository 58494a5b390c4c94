/** Where something was found. */
export interface BatchLocation {
  readonly source: 'ledger' | 'reply' | 'request' | 'letter' | 'witness';
  readonly topic: string;
  readonly partition: number;
  readonly offset: number;
  /** What names the request: its request ID, or else its correlation ID. */
  readonly requestId: Buffer;
}

/** One partition of one topic. */
export function logOf({ topic, partition }: Pick<BatchLocation, 'topic' | 'partition'>): string {
  return `${topic}/${partition}`;
}
