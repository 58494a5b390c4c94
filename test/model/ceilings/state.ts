/** The state of the model of ceilings: one worker ID, as etcd, the witness topic and each process know it. */

/** What can be broken in the rule, and the bounds of a world. */
export interface Rule {
  /** A swap takes effect only on the ceiling, and in the namespace, that its sender had read. */
  readonly comparesCeiling: boolean;
  readonly comparesNamespace: boolean;
  /** A term begins at the ceiling that it found; or at its own clock, which may be behind. */
  readonly begins: 'ceiling' | 'clock';
  /** The ceiling is under no lease. */
  readonly outlivesLease: boolean;
  /** What a swap did is read back; or its success is assumed. */
  readonly readsBack: boolean;
  /** A claim looks at the witness topic first. */
  readonly looks: boolean;
  /** A reservation is used only when it is witnessed, and the topic was read past its witness. */
  readonly waits: boolean;
  readonly readsPast: boolean;
  /** A witness that may land late has a name that no later one has. */
  readonly namesLate: boolean;
  /** A rebuild seals the topic before it measures; or at its end. */
  readonly seals: 'first' | 'last';
  /** A rebuild begins above ceilings and witnesses; or above the ceilings. */
  readonly countsWitnesses: boolean;
}

export const RULE: Rule = {
  comparesCeiling: true,
  comparesNamespace: true,
  begins: 'ceiling',
  outlivesLease: true,
  readsBack: true,
  looks: true,
  waits: true,
  readsPast: true,
  namesLate: true,
  seals: 'first',
  countsWitnesses: true,
};

export interface World {
  readonly workers: number;
  readonly claims: number;
  readonly raises: number;
  /** A claim reserves up to so many ticks; a raise reserves one. */
  readonly ticks: number;
  /** etcd is put back to its beginning so often; or to a backup. */
  readonly putBacks: number;
  readonly hasBackups: boolean;
  readonly rebuilds: number;
  /** Witnesses whose write has no answer: they land at any time, or never. */
  readonly silences: number;
  /** Processes that forget everything, so often. */
  readonly crashes: number;
}

/** Fence 0: nobody owns the worker ID. */
export interface Etcd {
  readonly namespace: number;
  readonly revision: number;
  readonly tick: number;
  readonly changed: number;
  readonly nonce: number;
  readonly fence: number;
  readonly lease: number;
}

/** A swap that was sent. It may take effect whenever etcd is as it compares. Fence 0: a claim. */
export interface Sent {
  readonly namespace: number;
  readonly fence: number;
  readonly compared: number;
  readonly from: number;
  readonly tick: number;
  readonly nonce: number;
}

/** A witness, under its name. */
export interface Mark {
  readonly namespace: number;
  readonly fence: number;
  readonly lease: number;
  readonly tick: number;
  readonly revision: number;
}

/** As compacted: of each name the last witness. */
export interface Topic {
  readonly seal: number;
  readonly marks: readonly Mark[];
}

type Stage = 'idle' | 'looked' | 'claimed' | 'won' | 'written' | 'held' | 'raising';

export interface Process {
  readonly stage: Stage;
  readonly view: Topic | undefined;
  readonly namespace: number;
  readonly fence: number;
  readonly lease: number;
  readonly nonce: number;
  readonly wanted: number;
  readonly compared: number;
  readonly from: number;
  readonly to: number;
  /** The ceiling that it won last: its tick, its revision, and the nonce of its swap. */
  readonly stored: number;
  readonly revision: number;
  readonly own: number;
  /** Writes of witnesses that had no answer. */
  readonly silent: number;
  readonly superseded: readonly Mark[];
}

/** All ticks that a term may have used. Whatever it may use counts as used: it may be paused until any time. */
interface Used {
  readonly namespace: number;
  readonly lease: number;
  readonly from: number;
  readonly to: number;
}

export interface State {
  readonly etcd: Etcd;
  readonly saved: Etcd;
  readonly sent: readonly Sent[];
  readonly late: readonly Mark[];
  readonly topic: Topic;
  readonly processes: readonly Process[];
  readonly operator: { readonly stage: 'idle' | 'sealed' | 'measured' | 'rebuilt' | 'ended'; readonly floor: number };
  readonly left: Pick<World, 'claims' | 'raises' | 'putBacks' | 'rebuilds' | 'silences' | 'crashes'>;
  readonly nonces: number;
  /** The highest ceiling that etcd ever had, and the one granted in this namespace; etcd may have forgotten it. */
  readonly highest: number;
  readonly granted: number;
  readonly hasForgotten: boolean;
  readonly used: readonly Used[];
}

export const IDLE: Process = {
  stage: 'idle',
  view: undefined,
  namespace: 0,
  fence: 0,
  lease: 0,
  nonce: 0,
  wanted: 0,
  compared: 0,
  from: 0,
  to: 0,
  stored: 0,
  revision: 0,
  own: 0,
  silent: 0,
  superseded: [],
};

export const BEGINNING: Etcd = { namespace: 1, revision: 1, tick: 0, changed: 1, nonce: 0, fence: 0, lease: 0 };

export function initialState({ workers, claims, raises, putBacks, rebuilds, silences, crashes }: World): State {
  return {
    etcd: BEGINNING,
    saved: BEGINNING,
    sent: [],
    late: [],
    topic: { seal: 1, marks: [] },
    processes: Array<Process>(workers).fill(IDLE),
    operator: { stage: 'idle', floor: 0 },
    left: { claims, raises, putBacks, rebuilds, silences, crashes },
    nonces: 0,
    highest: 0,
    granted: 0,
    hasForgotten: false,
    used: [],
  };
}

/** Processes have no names. */
export function encode(state: State): string {
  const processes = state.processes.map((process) => JSON.stringify(process)).sort();
  return JSON.stringify({ ...state, processes });
}

export function decode(text: string): State {
  const { processes, ...rest } = JSON.parse(text) as Omit<State, 'processes'> & { readonly processes: string[] };
  return { ...rest, processes: processes.map((process) => ({ view: undefined, ...JSON.parse(process) }) as Process) };
}
