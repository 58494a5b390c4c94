import type { IdBatch } from '../codec/id-batch.ts';
import type { Encoding } from '../codec/id-request.ts';
import type { Layout } from '../core/layout.ts';
import type { Runtime } from '../core/runtime.ts';
import type { Transport, TransportEvents } from './transport.ts';

export interface RequestOptions {
  readonly count: number;
  /** 1 to 256 bytes (text: as UTF-8); the same one always gets the same batch. Default: a new one. */
  readonly correlationId?: string | Uint8Array;
  /** Where to reply, if not on the client's own reply topic; it is read from then on, up to 8 of them. */
  readonly replyTopic?: string;
  /** Another limit than the client's. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /** How the reply lists its IDs on the wire (default RANGES); no difference to the caller. */
  readonly encoding?: Encoding;
}

/** A batch as the workers gave it. */
export interface RequestedBatch {
  readonly correlationId: string | Uint8Array;
  readonly batch: IdBatch;
  /** The layout of its IDs, for `decode`; undefined when this version knows no layout with the batch's fingerprint. */
  readonly layout: Layout | undefined;
  /** It was decided for an earlier sending of this request. */
  readonly replayed: boolean;
}

export interface WaitForIds {
  /** Another limit than the client's. */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
}

/** What a client stands on, for tests to replace. */
export interface Foundation {
  readonly runtime: Runtime;
  readonly replyTopic: string;
  readonly link: (events: TransportEvents) => Promise<Transport>;
}
