import { beforeEach, describe, expect, test } from 'vitest';
import type { CliContext } from '../../../src/cli/context.ts';
import { readJournal } from '../../../src/cli/journal/journal-run.ts';
import { moveNamespace } from '../../../src/cli/namespace/move-run.ts';
import type { ConfirmFlags } from '../../../src/cli/options.ts';
import { ticks } from '../../../src/core/units.ts';
import { bindingsOf, claimKey, ledgerHeadKeys } from '../../../src/identity/bindings.ts';
import { namespaceKeys } from '../../../src/identity/keys.ts';
import { floorAbove, rebuildNamespace } from '../../../src/identity/rebuild.ts';
import { type Fault, goodLink, type Link } from '../../identity/fake-etcd.ts';
import { BOUND, descriptorOf, layout, Stage, timing } from '../../identity/stage.ts';

const [OLD, NEW] = ['/keyspace', '/ids'];
const CLAIM = claimKey('id', 4);
const UUID = '89abcdef-0123-4567-89ab-cdef01234567';

let stage: Stage;
let out: string;
let asked: string;

beforeEach(async () => {
  stage = await Stage.open();
  for (const [key, text] of Object.entries(HEADS)) stage.etcd.tamper(`${OLD}${key}`, Buffer.from(text));
});

/** What etcd remembers of a ledger, by key without the prefix. */
const HEADS = Object.fromEntries(
  ['end', 'pending', 'sequence'].map((kind) => {
    const keys = ledgerHeadKeys('', 4, 'id.ledger', 0);
    return [kind === 'sequence' ? keys.sequence('invoices/2027') : keys[kind as 'end'], `the ${kind}`];
  }),
);

async function move(prefix: string, { flags = { yes: true }, link = goodLink, about = {} }: Partial<MoveCall> = {}) {
  out = '';
  asked = '';
  const context = {
    stop: new AbortController().signal,
    out: (text: string) => (out += text),
    err: () => undefined,
    who: () => 'alice@host',
    now: () => 0,
    terminal: { input: true, output: true, errors: true },
    ask: async (question: string) => (asked = question),
    ...about,
  } as unknown as CliContext;
  const config = { ...BOUND, etcd: { prefix } } as unknown as Parameters<typeof moveNamespace>[0]['config'];
  await moveNamespace({ context, etcd: stage.etcd.port(link), config }, flags);
}

interface MoveCall {
  readonly flags: ConfirmFlags;
  readonly link: Link;
  readonly about: Partial<CliContext>;
}

const owner = () => stage.etcd.peek(CLAIM)?.value.toString();
const headsAt = (prefix: string) =>
  Object.fromEntries(Object.keys(HEADS).map((key) => [key, stage.etcd.peek(`${prefix}${key}`)?.value.toString()]));
const keysBelow = (prefix: string) => stage.etcd.range(`${prefix}/`).kvs.map(({ key }) => key.slice(prefix.length));

async function journalAt(prefix: string) {
  const all = await readJournal({ etcd: stage.etcd.port(), config: { etcd: { prefix }, datacenterId: 4 } });
  return all.map(({ entry }) => [entry?.command, entry?.outcome, entry?.note]);
}

/** A worker with this prefix. */
function workerAt(prefix: string, namespace?: Awaited<ReturnType<Stage['open']>>) {
  const keys = namespaceKeys(prefix, 4);
  return stage.host({ keys, bindings: bindingsOf(keys, BOUND), ...(namespace && { namespace }) });
}

function rebuildAt(prefix: string) {
  const keys = namespaceKeys(prefix, 4);
  const now = stage.newClock().read().wall;
  return rebuildNamespace({
    ...{ etcd: stage.etcd.port(), witness: stage.witness.port(), keys, bindings: bindingsOf(keys, BOUND) },
    wanted: descriptorOf({ uuid: UUID }),
    floorOf: (found) => floorAbove(layout, { found, ledger: undefined, now, reserveMs: timing.reserveMs }),
  });
}

describe('a move', () => {
  test('gives the datacenter to the new prefix with all that etcd remembers, and leaves the old keys as they are', async () => {
    const before = keysBelow(OLD);
    await move(NEW);
    expect(owner()).toBe('/ids/datacenter/4/');
    expect([headsAt(NEW), headsAt(OLD)]).toEqual([HEADS, HEADS]);
    const own = (key: string) => !key.startsWith('/journal/');
    expect(keysBelow(OLD).filter(own)).toEqual(before);
    const left = before.filter((key) => /descriptor|ceilings/.test(key));
    expect(left.length).toBe(4);
    expect(keysBelow(NEW).filter(own)).toEqual(before.filter((key) => !left.includes(key)));
    expect(out).toMatch(
      /^moved to \/ids\/datacenter\/4\/, with \d+ keys .*\n.*namespace rebuild.*\n.*ETCD_PREFIX=\/keyspace/,
    );
    const entry = ['namespace move', 'done', expect.stringMatching(/^copied \d+ keys$/)];
    expect([await journalAt(OLD), await journalAt(NEW)]).toEqual([[entry], [entry]]);
  });

  test('shuts out workers of the old prefix, and after a rebuild those of the new one begin above all that was reserved', async () => {
    const old = await stage.host();
    await old.identity.acquire();
    await old.identity.release();
    const used = stage.ceiling(0).ticks;
    await move(NEW);
    await expect(old.identity.acquire()).rejects.toMatchObject({ code: 'NAMESPACE_MISMATCH' });
    const { floor } = await rebuildAt(NEW);
    expect(floor).toBeGreaterThan(used);
    stage.pass(2 * timing.reserveMs + 1_000);
    const descriptorValue = stage.etcd.peek(namespaceKeys(NEW, 4).descriptor)?.value ?? Buffer.alloc(0);
    const moved = await workerAt(NEW, { descriptor: descriptorOf({ uuid: UUID }), descriptorValue });
    expect(await moved.identity.acquire()).toEqual({ kind: 'held' });
    const authority = moved.authority();
    expect(authority.ok && authority.reservation.from).toBe(ticks(floor));
  });

  test('is undone by a move back: without a rebuild, the workers of before go on as before', async () => {
    const worker = await stage.host();
    await worker.identity.acquire();
    await worker.identity.release();
    await move(NEW);
    const [key = ''] = Object.keys(HEADS);
    stage.etcd.tamper(`${NEW}${key}`, Buffer.from('a later end'));
    stage.etcd.tamper(`${NEW}/ledger/4/id.ledger/0/pending`, undefined);
    await move(OLD);
    expect(owner()).toBe('/keyspace/datacenter/4/');
    const pending = Object.keys(HEADS).find((one) => one.endsWith('/pending')) ?? '';
    expect(headsAt(OLD)).toEqual({ ...HEADS, [key]: 'a later end', [pending]: undefined });
    stage.pass(timing.reserveMs);
    expect(await worker.identity.acquire()).toEqual({ kind: 'held' });
  });

  test.each([OLD, NEW])('is refused while a worker ID is held below %s, and changes nothing', async (prefix) => {
    stage.etcd.tamper(namespaceKeys(prefix, 4).owner(2), Buffer.from('a lease'));
    const { revision } = stage.etcd;
    await expect(move(NEW)).rejects.toMatchObject({
      code: 'REBUILD_REFUSED',
      message: expect.stringMatching(/\b2 by/),
    });
    expect(stage.etcd.revision).toBe(revision);
  });

  test('asks, with both places', async () => {
    const { revision } = stage.etcd;
    await expect(move(NEW, { flags: {} })).rejects.toMatchObject({ code: 'NOT_CONFIRMED' });
    expect(asked).toContain("datacenter 4 of the ID space 'id' from /keyspace/datacenter/4/ to /ids/datacenter/4/?");
    expect(stage.etcd.revision).toBe(revision);
    await move(NEW, { flags: { json: true }, about: { ask: async () => 'y' } });
    expect(JSON.parse(out)).toEqual({
      ...{ from: '/keyspace/datacenter/4/', to: '/ids/datacenter/4/', moved: true, copied: expect.any(Number) },
    });
  });

  test('to where the namespace is changes nothing', async () => {
    const { revision } = stage.etcd;
    await move(OLD);
    expect([out, stage.etcd.revision]).toEqual([expect.stringMatching(/already: nothing to move\n$/), revision]);
  });

  test.each([
    ['without a namespace', NEW, CLAIM, undefined, 'NOT_FOUND'],
    ['of what is no namespace', NEW, CLAIM, 'elsewhere', 'NAMESPACE_DAMAGED'],
    ['to the place of another ID space', NEW, '/ids/datacenter/4/id-space', 'acme', 'NAMESPACE_MISMATCH'],
    ['of other topics than its own', NEW, '/keyspace/datacenter/4/groups/idalloc', 'others', 'NAMESPACE_MISMATCH'],
    ['into its own ledger', '/keyspace/ledger/4', CLAIM, '/keyspace/datacenter/4/', 'CONFIG_INVALID'],
  ] as const)('%s is refused, and changes nothing', async (_what, prefix, key, value, code) => {
    stage.etcd.tamper(key, value === undefined ? undefined : Buffer.from(value));
    const { revision } = stage.etcd;
    await expect(move(prefix)).rejects.toMatchObject({ code });
    expect(stage.etcd.revision).toBe(revision);
  });

  test.each(['request lost', 'answer lost', 'late'] as const)(
    'that loses any of its writes (%s) is completed when it is repeated',
    async (fault) => {
      for (let nth = 0; nth < 20; nth += 1) {
        stage = await Stage.open();
        for (const [key, text] of Object.entries(HEADS)) stage.etcd.tamper(`${OLD}${key}`, Buffer.from(text));
        await move(NEW, { link: faulty(nth, fault) }).catch(() => undefined);
        await move(NEW);
        while (stage.etcd.lateCount > 0) stage.etcd.deliverLate();
        expect([owner(), headsAt(NEW)], `write ${nth}`).toEqual(['/ids/datacenter/4/', HEADS]);
      }
    },
  );

  test('that another one overtakes gives up, and the other one stands', async () => {
    const link: Link = async (name) => {
      if (name === 'transact' && owner() === '/keyspace/datacenter/4/')
        stage.etcd.tamper(CLAIM, Buffer.from('/x/datacenter/4/'));
      return { fault: 'pass' };
    };
    await expect(move(NEW, { link })).rejects.toMatchObject({ code: 'OVERTAKEN' });
    expect(owner()).toBe('/x/datacenter/4/');
  });
});

/** Gives the n-th write that fault, counted from 0. */
function faulty(nth: number, fault: Fault): Link {
  let writes = 0;
  return async (name) => ({ fault: name === 'transact' && writes++ === nth ? fault : 'pass' });
}
