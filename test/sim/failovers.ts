import { readSpans } from '../../src/adapters/kafka/topics/spans.ts';
import { adoptCluster } from '../../src/cli/namespace/adopt-run.ts';
import { SequenceLog } from '../../src/cli/sequence/sequence-log.ts';
import type { SequenceSession } from '../../src/cli/sequence/sequence-session.ts';
import { describeError, IdallocError } from '../../src/errors.ts';
import { ledgerHeadKeys } from '../../src/identity/bindings.ts';
import { Cluster } from '../../src/kafka/wire/cluster.ts';
import { KafkaError } from '../../src/kafka/wire/kafka-error.ts';
import { EtcdHeads } from '../../src/ledger/heads.ts';
import { headOf } from '../support/fake-kafka/batches.ts';
import type { Partition } from '../support/fake-kafka/partition.ts';
import type { PartitionLog } from '../support/fake-kafka/partition-log.ts';
import type { Brokers } from './brokers.ts';
import type { Clients } from './clients.ts';
import type { History } from './history.ts';
import type { Host, Surroundings } from './host.ts';
import type { LedgerFaults } from './ledger-faults.ts';
import { Machine, type Process } from './machine.ts';
import { OPERATOR } from './operator.ts';
import { configOf, FIRST, partitionsOf } from './pairs.ts';
import { runtimeOf } from './runtime.ts';
import { DATACENTER, NO_NAMESPACE, PREFIX, WITNESS } from './setting.ts';
import { growBeyondLedger } from './tail-losses.ts';
import type { World } from './world.ts';

/** When the first cluster is replaced, and the next ones. */
const FIRST_MS = { from: 8_000, to: 20_000 } as const;
const NEXT_MS = { from: 10_000, to: 20_000 } as const;
const AGAIN = 0.4;
/** Requests that are sent before and after, and in what time. */
const REQUESTS = 12;
const SENDING_MS = 3_000;
/** How long until the operator adopts the new cluster. */
const ADOPT_MS = { from: 500, to: 6_000 } as const;
/** How often the command is given again, and the share that is killed, within what time. */
const AGAIN_MS = { from: 1_000, to: 4_000 } as const;
const KILLED = 0.15;
const KILLED_MS = 60;
const COPIES: readonly Copying[] = ['same', 'same', 'shifted', 'none'];

/** The workers, as Failovers needs them. */
interface Workers {
  readonly hosts: () => readonly Host[];
  readonly blackout: () => void;
}

/** Kafka is replaced by another cluster, which has a copy of the logs that lags, or nothing; an operator adopts it. */
export class Failovers {
  readonly #around: Surroundings;
  readonly #clients: Clients;
  readonly #workers: Workers;
  readonly #ledgerFaults: LedgerFaults;
  readonly #machine: Machine;
  #isOver = false;
  #isAdopted = true;

  constructor(around: Surroundings, clients: Clients, workers: Workers, ledgerFaults: LedgerFaults) {
    this.#around = around;
    this.#clients = clients;
    this.#workers = workers;
    this.#ledgerFaults = ledgerFaults;
    this.#machine = new Machine(around.world, `${OPERATOR}-of-clusters`);
    const { world } = around;
    world.after(world.rng.between(FIRST_MS.from, FIRST_MS.to), () => this.#begin());
  }

  /**
   * Ends the faults. Requests go on until each partition ends above what its ledger knows: below that no worker serves
   * it.
   */
  heal(): void {
    this.#isOver = true;
    for (const partition of partitionsOf(FIRST)) {
      this.#ledgerFaults.askAgain(partition, 0);
      growBeyondLedger(this.#around, this.#clients, partition);
    }
  }

  missing(): string[] {
    return this.#isAdopted ? [] : ['the cluster is not adopted'];
  }

  #begin(): void {
    if (this.#isOver) return;
    const { world } = this.#around;
    const { rng } = world;
    this.#sendSome();
    world.after(rng.between(0, SENDING_MS), () => {
      if (this.#isOver) return;
      this.#fail();
      if (rng.chance(AGAIN)) world.after(rng.between(NEXT_MS.from, NEXT_MS.to), () => this.#begin());
    });
  }

  #fail(): void {
    const { world } = this.#around;
    const { rng } = world;
    this.#isAdopted = false;
    replaceCluster(this.#around, rng.pick(COPIES));
    if (rng.chance(0.6)) this.#workers.blackout();
    this.#sendSome();
    world.after(rng.between(ADOPT_MS.from, ADOPT_MS.to), () => this.#adopt());
  }

  /**
   * The operator gives the command until it succeeds; it is refused while workers hold worker IDs, and may be killed in
   * the middle.
   */
  #adopt(): void {
    const { world, history } = this.#around;
    const { rng } = world;
    const process = this.#machine.start();
    const again = (): void => {
      if (process.dead) return;
      process.crash();
      world.after(rng.between(AGAIN_MS.from, AGAIN_MS.to), () => this.#adopt());
    };
    if (rng.chance(KILLED)) world.after(rng.between(0, KILLED_MS), again);
    adopt(this.#around, this.#machine, process).then(
      () => {
        if (process.dead) return;
        process.crash();
        this.#adopted();
      },
      (error: unknown) => {
        world.note(() => `${process.name}: ${error}`);
        const isExpected = error instanceof IdallocError || error instanceof KafkaError;
        if (!isExpected) history.defects.push(`adopting the cluster: ${describeError(error)}`);
        if (error instanceof IdallocError && error.code === 'REBUILD_REFUSED') this.#workers.blackout();
        again();
      },
    );
  }

  #adopted(): void {
    const { world, history } = this.#around;
    this.#isAdopted = true;
    history.adoptions.push(world.tick());
    for (const loss of history.requestLosses) loss.seen ??= world.tick();
    this.#sendSome();
    for (const partition of partitionsOf(FIRST)) this.#ledgerFaults.askAgain(partition, 0);
  }

  /** New requests to each partition, for IDs and for numbers. */
  #sendSome(): void {
    const { world } = this.#around;
    const { rng } = world;
    for (const partition of partitionsOf(FIRST)) {
      for (let left = rng.below(REQUESTS); left > 0; left -= 1) {
        world.after(rng.between(0, SENDING_MS), () => this.#clients.sendTo(partition));
        world.after(rng.between(0, SENDING_MS), () => this.#clients.takeNumbersOf(partition));
      }
    }
  }
}

/** How a new cluster got its records: from a mirror that keeps offsets, from one that does not, or not at all. */
type Copying = 'same' | 'shifted' | 'none';

/** The most records by which a copy of a partition lags. */
const MOST_LAG = 8;
/** Logs that are copied with other offsets have lost at most so many records at their heads. */
const MOST_SHIFT = 12;
/** The share of copies that lack the offsets that the group committed. */
const WITHOUT_OFFSETS = 0.3;

/** A log of the old cluster, and its copy. */
interface Mirrored {
  readonly what: 'requests' | 'ledger';
  readonly partition: number;
  readonly from: Partition;
  readonly end: number;
  readonly committed: number | undefined;
}

/**
 * Replaces the cluster by another one with another ID, as a failover to a mirror does. What the new one lacks is lost:
 * in the history that is a loss of each partition's tail, or of all of it where offsets differ. Records at other
 * offsets are written anew.
 */
function replaceCluster(
  { world, brokers, history }: { readonly world: World; readonly brokers: Brokers; readonly history: History },
  copying: Copying,
): void {
  const { rng } = world;
  const { cluster } = brokers;
  const replies = [...cluster.topics.values()].filter(({ name }) => brokers.isOfClients(name));
  const mirrored = partitionsOf(FIRST).flatMap((partition): Mirrored[] =>
    (['requests', 'ledger'] as const).map((what) => {
      const from = brokers.partition(what, partition);
      if (copying === 'shifted') from.log.trim(Math.min(from.highWatermark, from.log.start + rng.below(MOST_SHIFT)));
      const committed = what === 'requests' ? brokers.committed(partition) : undefined;
      return { what, partition, from, end: endOfCopy(from, rng.chance(0.3) ? 0 : rng.below(MOST_LAG)), committed };
    }),
  );
  const added = cluster.topics.get(FIRST.requests)?.partitions.slice(FIRST.partitions) ?? [];
  const witness = cluster.partition(WITNESS, 0);
  const clusterId = `fake-kafka-${history.replacements.length + 2}`;
  cluster.replace(clusterId);
  world.note(
    () =>
      `the cluster is replaced by ${clusterId}, ${copying === 'none' ? 'which is empty' : `a copy with ${copying} offsets`}`,
  );
  history.replacements.push({ order: world.tick(), clusterId, copying });
  // Their readers are elsewhere: what they have read stays read.
  for (const { name, partitions } of replies) {
    for (const { number, log } of partitions) cluster.partition(name, number).copy(log);
  }
  // What was sent to partitions that were added by mistake waits there for the next owner.
  for (const { number, log } of added) cluster.partition(FIRST.requests, number).copy(log);
  if (copying !== 'none') cluster.partition(WITNESS, 0).copy(witness.log);
  const keepsOffsets = copying !== 'none' && !rng.chance(WITHOUT_OFFSETS);
  for (const one of mirrored) mirror(brokers, world, one, { copying, keepsOffsets });
}

function mirror(
  brokers: Brokers,
  world: World,
  { what, partition, from, end, committed }: Mirrored,
  { copying, keepsOffsets }: { readonly copying: Copying; readonly keepsOffsets: boolean },
): void {
  const to = brokers.partition(what, partition);
  const { start } = from.log;
  brokers.lost(what, partition, { from: copying === 'same' ? end : 0, end: from.log.end });
  if (copying === 'same') {
    to.copy(from.log);
    if (end < to.log.end) to.truncate(end);
  }
  if (copying === 'shifted') {
    const nowMs = brokers.nowMs();
    for (const batch of from.log.batches(start, end)) {
      // Retention leaves the batch that contains the start of the log; a mirror reads none of what is below that.
      if (headOf(batch).baseOffset >= start) to.append(batch, nowMs, () => {});
    }
  }
  // Their markers may be in what was lost.
  for (const producerId of to.log.open) {
    const kind = brokers.transactions.get(producerId) ?? 'abort';
    brokers.cluster.endTransaction(to.topic, to.number, kind, producerId);
  }
  world.note(() => `${what} ${partition}: ${start} to ${from.log.end} became ${to.log.start} to ${to.log.end}`);
  if (what === 'ledger' || !keepsOffsets || committed === undefined) return;
  const at = copying === 'same' ? committed : Math.max(0, committed - start);
  brokers.resetOffsets(partition, Math.min(at, to.log.end));
}

/** A copy lags by whole batches. */
function endOfCopy({ log, highWatermark }: Pick<Partition, 'log' | 'highWatermark'>, lag: number): number {
  return baseOf(log, Math.max(log.start, highWatermark - lag));
}

/** The first offset of the batch that contains this one. */
function baseOf(log: PartitionLog, offset: number): number {
  const [batch] = log.batches(offset, offset + 1);
  return batch === undefined ? offset : Math.max(log.start, headOf(batch).baseOffset);
}

/**
 * Runs `idalloc namespace adopt-cluster --yes` in a process of a machine: the real code, without its own connections.
 */
async function adopt({ world, brokers, store }: Surroundings, machine: Machine, process: Process): Promise<void> {
  const config = configOf(brokers.config, FIRST);
  const runtime = runtimeOf(world, machine, process);
  const cluster = new Cluster({ dialer: brokers.dialer(process, []), seeds: brokers.kafka.seeds, runtime });
  const source = { cluster, runtime };
  const etcd = store.port(process, () => () => {});
  const keysOf = (partition: number) => ledgerHeadKeys(PREFIX, DATACENTER, FIRST.ledger, partition);
  const stop = new AbortController().signal;
  const note = (text: string): void => world.note(() => `${process.name}: ${text.trimEnd()}`);
  const session = {
    context: { out: note, err: note, setExitCode: () => {}, now: runtime.wallMs, who: () => machine.name },
    newId: () => `00000000-0000-4000-8000-${String(world.tick()).padStart(12, '0')}`,
    config,
    source,
    etcd,
    log: new SequenceLog({
      source,
      topics: config.topics,
      partitions: FIRST.partitions,
      read: (spans, take) => readSpans(source, spans, { signal: stop, take, onProgress: () => {} }),
    }),
    heads: new EtcdHeads({ etcd, keysOf }),
    namespace: store.namespace ?? NO_NAMESPACE,
    keysOf,
  };
  try {
    await adoptCluster(session as unknown as SequenceSession, { yes: true });
  } finally {
    await cluster.close();
  }
}
