import type {
  FetchedPartition,
  FetchPosition,
  FetchRequest,
  FetchResponse,
  SessionStep,
} from '../../../src/kafka/wire/record-apis.ts';

/** A partition in a session, with what its reader was last told of it. */
interface InSession {
  readonly position: FetchPosition;
  readonly highWatermark: number;
  readonly logStartOffset: number;
}

interface Session {
  epoch: number;
  /** In the order in which they are read. */
  readonly partitions: Map<string, InSession>;
}

/** A fetch: what to read, and how the response is made of what was read. */
export interface SessionFetch {
  readonly positions: readonly FetchPosition[];
  respond(read: readonly FetchedPartition[]): Omit<FetchResponse, 'throttleMs'> | typeof WRONG_EPOCH;
}

const NO_SESSION: SessionStep = { id: 0, epoch: -1, forgotten: [] };
const UNKNOWN = 'FETCH_SESSION_ID_NOT_FOUND';
const WRONG_EPOCH = 'INVALID_FETCH_SESSION_EPOCH';

const nameOf = ({ topic, partition }: Pick<FetchPosition, 'topic' | 'partition'>) => `${topic}/${partition}`;

/**
 * The fetch sessions of one broker (KIP-227), which are in its memory alone. Where Kafka would refuse a session for
 * want of room, this ends the one that was used least recently, so that readers meet the end of sessions more often.
 */
export class FetchSessions {
  /** The least recently used first. */
  readonly #sessions = new Map<number, Session>();
  readonly #nextId: () => number;
  /** The most that are kept; 0 refuses all. */
  readonly #most: () => number;

  constructor(nextId: () => number, most: () => number) {
    this.#nextId = nextId;
    this.#most = most;
  }

  /** The broker restarts, or needs the room. */
  clear(): void {
    this.#sessions.clear();
  }

  /** All that a request would fetch, whether it names it or not; of an unknown session only what it names. */
  positionsOf({ session: { id, epoch, forgotten } = NO_SESSION, partitions }: FetchRequest): FetchPosition[] {
    const known = epoch > 0 ? [...(this.#sessions.get(id)?.partitions.values() ?? [])] : [];
    const all = new Map([...known.map(({ position }) => position), ...partitions].map((one) => [nameOf(one), one]));
    for (const one of forgotten) all.delete(nameOf(one));
    return [...all.values()];
  }

  begin(request: FetchRequest): SessionFetch | typeof UNKNOWN | typeof WRONG_EPOCH {
    const { session: { id, epoch, forgotten } = NO_SESSION, partitions } = request;
    const session = this.#sessions.get(id);
    this.#sessions.delete(id);
    if (epoch <= 0) return { positions: partitions, respond: (read) => this.#full(epoch, partitions, read) };
    if (session === undefined) return UNKNOWN;
    if (session.epoch !== epoch) {
      this.#sessions.set(id, session);
      return WRONG_EPOCH;
    }
    for (const position of partitions) {
      const { highWatermark = -1, logStartOffset = -1 } = session.partitions.get(nameOf(position)) ?? {};
      session.partitions.set(nameOf(position), { position, highWatermark, logStartOffset });
    }
    for (const one of forgotten) session.partitions.delete(nameOf(one));
    if (session.partitions.size === 0) return { positions: [], respond: () => ({ sessionId: 0, partitions: [] }) };
    this.#sessions.set(id, session);
    session.epoch += 1;
    const positions = [...session.partitions.values()].map(({ position }) => position);
    return { positions, respond: (read) => respondTo(session, id, epoch, read) };
  }

  #full(epoch: number, positions: readonly FetchPosition[], read: readonly FetchedPartition[]) {
    if (epoch < 0 || this.#most() <= 0) return { sessionId: 0, partitions: read };
    const [oldest] = this.#sessions.keys();
    if (oldest !== undefined && this.#sessions.size >= this.#most()) this.#sessions.delete(oldest);
    const session: Session = { epoch: 1, partitions: new Map() };
    for (const [i, position] of positions.entries()) keep(session, position, read[i] as FetchedPartition);
    const sessionId = this.#nextId();
    this.#sessions.set(sessionId, session);
    return { sessionId, partitions: read };
  }
}

/** Only what is news. It moves to the end of the session, so that no partition is read behind a busy one for ever. */
function respondTo(session: Session, sessionId: number, epoch: number, read: readonly FetchedPartition[]) {
  if (session.epoch !== epoch + 1) return WRONG_EPOCH;
  const partitions = read.filter((one) => {
    const known = session.partitions.get(nameOf(one)) as InSession;
    const isMoved = known.highWatermark !== one.highWatermark || known.logStartOffset !== one.logStartOffset;
    if (one.records.length === 0 && one.errorCode === undefined && !isMoved) return false;
    session.partitions.delete(nameOf(one));
    keep(session, known.position, one);
    return true;
  });
  return { sessionId, partitions };
}

function keep({ partitions }: Session, position: FetchPosition, read: FetchedPartition): void {
  const { errorCode, highWatermark, logStartOffset } = read;
  const told = { highWatermark: errorCode === undefined ? highWatermark : -1, logStartOffset };
  partitions.set(nameOf(position), { position, ...told });
}
