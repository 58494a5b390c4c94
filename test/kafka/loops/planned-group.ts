import {
  type Candidate,
  type Claims,
  type Copy,
  type Plan,
  type PlanSettings,
  planGroup,
  type Share,
} from '../../../src/kafka/loops/planner.ts';

const NOTHING: Share = { partitions: [], standbys: [], warmups: [] };

interface Planned {
  share: Share;
  generation: number;
  /** Where its copies end, by partition. */
  readonly ends: Map<number, number>;
  zone: string | undefined;
}

/** A group whose members report to the leader and follow its plan; nothing else happens in it. */
export class PlannedGroup {
  readonly settings: PlanSettings;
  readonly logEnd: number;
  readonly members = new Map<string, Planned>();
  /** By instance ID: what the leader had assigned to members that have left. */
  readonly #remembered = new Map<string, Claims>();
  #generation = 0;

  constructor(settings: PlanSettings, logEnd: number) {
    this.settings = settings;
    this.logEnd = logEnd;
  }

  join(name: string, ends: ReadonlyMap<number, number> = new Map(), zone?: string): void {
    this.members.set(name, { share: NOTHING, generation: -1, ends: new Map(ends), zone });
  }

  /** Removes a member; returns where its copies end, which stay on its disk. */
  leave(name: string): ReadonlyMap<number, number> {
    const member = this.members.get(name);
    if (member === undefined) throw new Error(`there is no member ${name}`);
    this.members.delete(name);
    this.#remembered.set(name, { generation: member.generation, ...member.share });
    return member.ends;
  }

  /** One rebalance. Returns how many partitions have another owner than before, those included that had none. */
  plan(): number {
    const before = this.owners;
    const plan: Plan = planGroup(this.settings, this.candidates);
    this.#generation += 1;
    for (const [name, member] of this.members) {
      member.share = plan.get(name) ?? NOTHING;
      member.generation = this.#generation;
    }
    return [...this.owners].filter(([partition, name]) => before.get(partition) !== name).length;
  }

  /** Completes copies, of `atMost` partitions a member; copies that are not needed are dropped, or stay as they are. */
  copy({ atMost = Number.POSITIVE_INFINITY, drop = true } = {}): void {
    for (const { share, ends } of this.members.values()) {
      const kept = new Set([...share.partitions, ...share.standbys]);
      if (drop) for (const partition of ends.keys()) if (!kept.has(partition)) ends.delete(partition);
      const behind = [...kept].filter((partition) => ends.get(partition) !== this.logEnd);
      for (const partition of behind.slice(0, atMost)) ends.set(partition, this.logEnd);
    }
  }

  /** Plans and copies until nothing changes any more; returns the moves of each round. */
  settle(copying: { readonly atMost?: number; readonly drop?: boolean } = {}): number[] {
    const moves: number[] = [];
    for (let round = 0; round < 200; round += 1) {
      const before = this.#described;
      moves.push(this.plan());
      this.copy(copying);
      if (this.#described === before) return moves.slice(0, -1);
    }
    throw new Error('the plan still changes after the most rounds allowed');
  }

  get candidates(): Candidate[] {
    return [...this.members].map(([name, { share, generation, ends, zone }]) => {
      const claims = [{ generation, ...share }, ...[this.#remembered.get(name) ?? []].flat()];
      const copies = new Map<number, Copy>([...ends].map(([at, end]) => [at, { end, logEnd: this.logEnd }]));
      return { memberId: name, instanceId: name, claims, copies, zone };
    });
  }

  get owners(): ReadonlyMap<number, string> {
    return new Map([...this.members].flatMap(([name, { share }]) => share.partitions.map((at) => [at, name])));
  }

  /** Partitions whose owner has no complete copy of them, while some member has one. */
  get stalled(): readonly number[] {
    const hasAll = (name: string | undefined, partition: number) =>
      this.members.get(name ?? '')?.ends.get(partition) === this.logEnd;
    return [...this.owners]
      .filter(([at, owner]) => !hasAll(owner, at) && [...this.members.keys()].some((name) => hasAll(name, at)))
      .map(([at]) => at);
  }

  /** Partitions of which no member has a complete copy. */
  get lost(): readonly number[] {
    const all = Array.from({ length: this.settings.partitions }, (_, partition) => partition);
    return all.filter((at) => ![...this.members.values()].some(({ ends }) => ends.get(at) === this.logEnd));
  }

  counts(of: keyof Share): number[] {
    return [...this.members.values()].map(({ share }) => share[of].length);
  }

  get #described(): string {
    return JSON.stringify([...this.members].map(([name, { share, ends }]) => [name, share, [...ends].sort()]));
  }
}
