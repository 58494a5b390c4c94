import { describe, expect, it } from 'vitest';
import { decodeDescriptor } from '../../src/codec/namespace-values.ts';
import { toTicks } from '../../src/core/layout.ts';
import { ticks, type WallMs, wallMs } from '../../src/core/units.ts';
import { bindingsOf } from '../../src/identity/bindings.ts';
import type { EtcdPort, WitnessPort } from '../../src/identity/identity-ports.ts';
import { namespaceKeys } from '../../src/identity/keys.ts';
import {
  believed,
  floorAbove,
  readStoredNamespace,
  rebuildNamespace,
  type StoredNamespace,
  usedTicks,
} from '../../src/identity/rebuild.ts';
import { BOUND, bindings, descriptorOf, type Host, keys, layout, Stage, timing } from './stage.ts';

let rebuilds = 0;
const newUuid = () => `00000000-0000-4000-8000-${String(++rebuilds).padStart(12, '0')}`;

interface Changes {
  readonly etcd?: EtcdPort;
  readonly witness?: WitnessPort;
  readonly now?: WallMs;
  readonly ledger?: number;
}

/** Rebuilds the namespace of a stage, by default at the time of its hosts. */
function rebuild(stage: Stage, changes: Changes = {}) {
  const { etcd = stage.etcd.port(), witness = stage.witness.port(), now = stage.newClock().read().wall } = changes;
  const wanted = descriptorOf({ uuid: newUuid() });
  const ledger = changes.ledger === undefined ? undefined : ticks(changes.ledger);
  return rebuildNamespace({
    etcd,
    witness,
    keys,
    wanted,
    bindings,
    floorOf: (found) => floorAbove(layout, { found, ledger, now, reserveMs: timing.reserveMs }),
  });
}

/** A stage whose worker ID 0 was used and released, with a backup of etcd from before that. */
async function used() {
  const stage = await Stage.open();
  const restore = stage.etcd.backUp();
  const host = await stage.host();
  await host.identity.acquire();
  await host.identity.release();
  return { stage, host, restore, ceiling: stage.ceiling(0).ticks };
}

const reserved = (host: Host) => {
  const authority = host.authority();
  return authority.ok ? authority.reservation : undefined;
};
const ceilings = (stage: Stage) => [0, 1, 2].map((workerId) => stage.ceiling(workerId).ticks);
const RESERVE_TICKS = timing.reserveMs / layout.tickMs + 1;

describe('a rebuild', () => {
  it.each([
    ['restored from a backup', (_stage: Stage, restore: () => void) => restore()],
    ['wiped', (stage: Stage) => stage.etcd.wipe()],
    ['damaged in a ceiling', (stage: Stage) => stage.etcd.tamper(keys.ceiling(1), Buffer.from('soon'))],
    ['left without a descriptor', (stage: Stage) => stage.etcd.tamper(keys.descriptor, undefined)],
  ])(
    'of an etcd that was %s starts every worker ID above everything reserved, and the same worker continues',
    async (_what, harm) => {
      const { stage, host, restore, ceiling } = await used();
      harm(stage, restore);
      const { floor } = await rebuild(stage);
      expect(floor).toBe(ceiling + RESERVE_TICKS);
      expect(ceilings(stage)).toEqual([floor, floor, floor]);
      stage.pass(2 * timing.reserveMs + 1_000);
      expect(await host.identity.acquire()).toEqual({ kind: 'held' });
      expect(reserved(host)?.from).toBe(floor);
      expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
    },
  );

  it('ends with a seal, a witness for each worker ID and no older witnesses', async () => {
    const { stage } = await used();
    stage.witness.apply('4/else', 'junk');
    stage.etcd.wipe();
    const { floor } = await rebuild(stage);
    const { uuid } = decodeDescriptor(stage.etcd.peek(keys.descriptor)?.value ?? Buffer.alloc(0));
    const { seal, witnesses, unreadable } = stage.witness.view();
    expect([seal, unreadable]).toEqual([uuid, []]);
    expect(witnesses).toMatchObject([0, 1, 2].map((workerId) => ({ uuid, workerId, fence: 0n, ticks: floor })));
  });

  it('takes the highest of ledger, ceilings, witnesses and time, plus the length of a reservation', async () => {
    const { stage, ceiling } = await used();
    const floors = [];
    for (const changes of [{}, { ledger: ceiling + 7 }, { now: wallMs(layout.epochMs + ceiling + 9_000) }]) {
      const { etcd, witness } = { etcd: stage.etcd.backUp(), witness: new Stage().witness };
      for (const { put } of stage.witness.view().witnesses.map((one) => ({ put: one }))) witness.land([{ put }]);
      floors.push((await rebuild(stage, { ...changes, witness: witness.port() })).floor);
      etcd();
    }
    expect(floors).toEqual([ceiling, ceiling + 7, ceiling + 9_000].map((at) => at + RESERVE_TICKS));
  });

  it('keeps what only the witness shows when etcd is lost again before the first acquire', async () => {
    const { stage } = await used();
    stage.etcd.wipe();
    const first = await rebuild(stage);
    stage.etcd.wipe();
    const second = await rebuild(stage, { now: wallMs(layout.epochMs) });
    expect(second.floor).toBeGreaterThan(first.floor);
    expect(second.floor - first.floor).toBeLessThan(RESERVE_TICKS);
  });

  it('is refused while a worker ID is held, names the holder, and changes nothing', async () => {
    const stage = await Stage.open();
    const host = await stage.host({ staticWorkerId: 2 });
    await host.identity.acquire();
    const [etcd, topic] = [stage.etcd.revision, stage.witness.log.length];
    await expect(rebuild(stage)).rejects.toMatchObject({
      code: 'REBUILD_REFUSED',
      message: expect.stringContaining('2'),
    });
    expect([stage.etcd.revision, stage.witness.log.length]).toEqual([etcd, topic]);
    expect(await host.identity.heartbeat()).toEqual({ kind: 'held' });
  });

  it('is refused past the end of the layout, before it has changed etcd', async () => {
    const { stage } = await used();
    const before = stage.etcd.revision;
    await expect(rebuild(stage, { ledger: layout.endTicks - 1 })).rejects.toMatchObject({ code: 'LAYOUT_EXHAUSTED' });
    expect(stage.etcd.revision).toBe(before);
  });

  it('voids the reservation of a worker that reads the topic late, wherever its witness lies in the log', async () => {
    const stage = await Stage.open();
    const port = stage.witness.port();
    const onItsWay = Promise.withResolvers<void>();
    const host = await stage.host({
      witness: {
        ...port,
        write: async (entries) => {
          await onItsWay.promise;
          return await port.write(entries);
        },
      },
    });
    const acquiring = host.identity.acquire();
    for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
    stage.etcd.wipe();
    await rebuild(stage);
    onItsWay.resolve();
    expect(await acquiring).toMatchObject({ kind: 'refused', code: 'RESTORED' });
    expect(host.authority().ok).toBe(false);
    const next = await stage.host();
    stage.pass(2 * timing.reserveMs);
    expect(await next.identity.acquire()).toEqual({ kind: 'held' });
  });

  it('rejects a stale raise even if etcd repeats its revisions', async () => {
    const stage = await Stage.open();
    let held: Promise<void> | undefined;
    const host = await stage.host({}, async (name) => {
      if (name === 'transact') await held;
      return { fault: 'pass' };
    });
    await host.identity.acquire();
    const { fence } = host.identity.state;
    const onItsWay = Promise.withResolvers<void>();
    held = onItsWay.promise;
    stage.pass(timing.heartbeatMs);
    const beating = host.identity.heartbeat();
    await new Promise((resolve) => setImmediate(resolve));
    stage.etcd.wipe();
    await rebuild(stage);
    stage.pass(2 * timing.reserveMs);
    const other = await stage.host();
    while (stage.etcd.revision < (fence ?? 0n) - 1n) stage.etcd.tamper('/elsewhere', Buffer.of(0));
    await other.identity.acquire();
    expect(other.identity.state, 'the same worker ID and fence').toMatchObject({ workerId: 0, fence });
    const ceiling = stage.ceiling(0);
    onItsWay.resolve();
    await beating;
    expect(stage.ceiling(0)).toEqual(ceiling);
    expect(await other.identity.heartbeat()).toEqual({ kind: 'held' });
  });
});

describe('witnesses declared as forged', () => {
  it('do not count, and those up to the named tick do', async () => {
    const { stage, ceiling } = await used();
    const [genuine] = stage.witness.view().witnesses;
    if (genuine === undefined) throw new Error('nothing was witnessed');
    const forged = { ...genuine, workerId: 1, ticks: ticks(genuine.ticks + 10_000_000) };
    await stage.witness.port().write([{ put: forged }]);
    const found = await readStoredNamespace(stage.etcd.port(), stage.witness.port(), keys);
    expect(usedTicks(found).witnesses).toBe(forged.ticks);
    const without = (highest: number) => usedTicks(believed(found, descriptorOf(), ticks(highest)));
    expect(without(genuine.ticks).witnesses).toBe(genuine.ticks);
    expect(without(genuine.ticks - 1).witnesses).toBeUndefined();
    expect(without(0).ceilings).toBe(ceiling);
  });

  it('are refused in another layout, by whose ticks a genuine one may look too high', async () => {
    const { stage } = await used();
    const found = await readStoredNamespace(stage.etcd.port(), stage.witness.port(), keys);
    const coarse = descriptorOf({ layoutFingerprint: '0123456789abcdef' });
    for (const highest of [undefined, ticks(0)]) {
      expect(() => believed(found, coarse, highest)).toThrow(/in layout .*IDs of two layouts can be equal/);
    }
  });
});

describe('a rebuild under another prefix', () => {
  const moved = namespaceKeys('/moved', 4);

  function rebuildMoved(stage: Stage) {
    const wanted = descriptorOf({ uuid: newUuid() });
    const options = { etcd: stage.etcd.port(), witness: stage.witness.port(), keys: moved, wanted };
    const floorOf = (found: StoredNamespace) =>
      floorAbove(layout, { found, ledger: undefined, now: stage.newClock().read().wall, reserveMs: timing.reserveMs });
    return rebuildNamespace({ ...options, bindings: bindingsOf(moved, BOUND), floorOf });
  }

  it('is refused while the datacenter is claimed, and writes no seal', async () => {
    const { stage } = await used();
    await expect(rebuildMoved(stage)).rejects.toMatchObject({ code: 'NAMESPACE_MISMATCH' });
    expect([stage.witness.view().seal, stage.etcd.range(moved.root).kvs]).toEqual([undefined, []]);
  });

  it('starts above what the old one reserved once the claim is removed, and rejects its workers', async () => {
    const { stage, host, ceiling } = await used();
    stage.etcd.tamper(bindings.claim.key, undefined);
    expect((await rebuildMoved(stage)).floor).toBeGreaterThan(ceiling);
    expect(await host.identity.acquire()).toMatchObject({ kind: 'refused', code: 'RESTORED' });
    await expect(stage.open()).rejects.toMatchObject({ code: 'NAMESPACE_MISMATCH' });
  });
});

describe('a rebuild that is interrupted', () => {
  /** Lets `calls` calls through; later ones fail. */
  function limited(stage: Stage, calls: number) {
    let left = calls;
    const counted = <T extends object>(port: T): T =>
      new Proxy(port, {
        get: (target, name) => {
          const call = Reflect.get(target, name) as (...args: unknown[]) => unknown;
          return async (...args: unknown[]) => {
            if (left <= 0) throw new Error('interrupted');
            left -= 1;
            return await call.apply(target, args);
          };
        },
      });
    return { etcd: counted(stage.etcd.port()), witness: counted(stage.witness.port()) };
  }

  it('at any point allows no allocation below the floor meanwhile, and is completed by the next one', async () => {
    let finished = false;
    let interrupted = 0;
    for (let calls = 1; !finished; calls += 1) {
      const { stage, host, restore, ceiling } = await used();
      restore();
      finished = await rebuild(stage, limited(stage, calls)).then(
        () => true,
        () => false,
      );
      interrupted += Number(!finished);
      expect(Math.max(...stage.witness.view().witnesses.map((witness) => witness.ticks))).toBeGreaterThanOrEqual(
        ceiling,
      );
      stage.pass(2 * timing.reserveMs + 1_000);
      const outcome = await host.identity.acquire().catch((error: unknown) => error);
      expect(outcome).toMatchObject({ kind: expect.stringMatching(/held|refused/) });
      expect(reserved(host)?.from ?? ceiling).toBeGreaterThanOrEqual(ceiling);
      await host.identity.release();
      const { floor } = await rebuild(stage);
      expect(floor).toBeGreaterThan(ceiling);
      stage.pass(4 * timing.reserveMs);
      expect(await host.identity.acquire()).toEqual({ kind: 'held' });
      expect(reserved(host)?.from).toBe(floor);
    }
    expect(interrupted).toBeGreaterThan(8);
  });

  it('repeatedly does not raise the floor each time', async () => {
    const { stage } = await used();
    stage.etcd.wipe();
    const floors = [];
    for (let time = 0; time < 5; time += 1) floors.push((await rebuild(stage)).floor);
    expect((floors.at(-1) ?? 0) - (floors[0] ?? 0)).toBeLessThan(10);
    expect(toTicks(layout, stage.newClock().read().wall)).toBeLessThan(floors[0] ?? 0);
  });

  it('by another rebuild fails in favour of that one', async () => {
    const { stage } = await used();
    stage.etcd.wipe();
    const port = stage.etcd.port();
    let begun = false;
    const slow: EtcdPort = {
      ...port,
      transact: async (compares, operations) => {
        if (!begun && operations.some((operation) => 'put' in operation && keys.parse(operation.put) !== undefined)) {
          begun = true;
          await rebuild(stage);
        }
        return await port.transact(compares, operations);
      },
    };
    await expect(rebuild(stage, { etcd: slow })).rejects.toMatchObject({ code: 'REBUILD_REFUSED' });
    stage.pass(4 * timing.reserveMs);
    expect(await (await stage.host()).identity.acquire()).toEqual({ kind: 'held' });
  });
});
