import { etcdContract } from '../identity/etcd-contract.ts';
import { Store } from './etcd.ts';
import { emptyHistory } from './history.ts';
import { Machine } from './machine.ts';
import { Network } from './network.ts';
import { World } from './world.ts';

const SOON_MS = 60_000;

/** The same port, but each call lets virtual time pass until it is answered. */
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

etcdContract('the simulated store', () => {
  const world = new World(1, false);
  const store = new Store(world, new Network(world), emptyHistory());
  const process = new Machine(world, 'm0').start();
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
