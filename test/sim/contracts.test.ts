import { GuardedClock } from '../../src/guarded-clock.ts';
import type { LedgerRecord } from '../../src/pipeline/ports.ts';
import { etcdContract } from '../identity/etcd-contract.ts';
import { KafkaClient, Reader } from './clients.ts';
import { Store } from './etcd.ts';
import { emptyHistory } from './history.ts';
import { Brokers } from './kafka.ts';
import { ledgerContract } from './ledger-contract.ts';
import { Machine } from './machine.ts';
import { Network } from './network.ts';
import { World } from './world.ts';

const SOON_MS = 60_000;

/** The same calls, each of which lets virtual time pass until it is answered. */
function driven<T extends object>(world: World, port: T): T {
  return new Proxy(port, {
    get: (target, name, receiver) => {
      const method = Reflect.get(target, name, receiver);
      if (typeof method !== 'function') return method;
      return async (...args: unknown[]) => await answered(world, method.apply(target, args));
    },
  });
}

async function answered<T>(world: World, call: Promise<T>): Promise<T> {
  let over = false;
  const end = (): void => {
    over = true;
  };
  call.then(end, end);
  await world.run(world.nowMs + SOON_MS, () => over);
  return await call;
}

function stage() {
  const world = new World(1, false);
  const network = new Network(world);
  const machine = new Machine(world, 'm0');
  return { world, network, machine, process: machine.start(), history: emptyHistory() };
}

etcdContract('the simulated store', () => {
  const { world, network, process, history } = stage();
  const store = new Store(world, network, history);
  return {
    port: driven(
      world,
      store.port(process, () => () => {}),
    ),
    prefix: '/contract/',
    outlive: async (seconds) => {
      const { atMs } = world.after(seconds * 1_000, () => {});
      await world.run(atMs, () => false);
    },
    close: () => {},
  };
});

ledgerContract('the simulated brokers', () => {
  const { world, network, machine, process, history } = stage();
  const brokers = new Brokers(world, history);
  const client = new KafkaClient(world, network, brokers, process);
  const log = driven(world, client.ledgerLog(new GuardedClock(machine.read), history));
  return {
    log,
    read: async (partition, from) => {
      const end = await log.endOffset(partition);
      const read: LedgerRecord[] = [];
      const deliver = (_: number, records: readonly LedgerRecord[]): unknown => read.push(...records);
      const sink = { begin: () => from, resume: () => from, deliver };
      new Reader(client, partition, sink as ConstructorParameters<typeof Reader>[2]).restart();
      await world.run(world.nowMs + SOON_MS, () => from + read.length >= end);
      return read;
    },
    ask: async (partition) => void brokers.ask(partition, { key: null, value: Buffer.from('a request') }),
    close: () => {},
  };
});
