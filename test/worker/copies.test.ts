import { beforeEach, describe, expect, it } from 'vitest';
import { IdallocError } from '../../src/errors.ts';
import { KeptCopies } from '../../src/worker/ledger-service.ts';
import { VirtualRuntime } from '../support/virtual-runtime.ts';

const LINGER_MS = 600_000;

let runtime: VirtualRuntime;
let events: string[];
let held: number[];
/** Called before each step of the disk. */
let onStep: () => void;

beforeEach(() => {
  runtime = new VirtualRuntime();
  events = [];
  held = [];
  onStep = () => {};
});

/** A disk that takes three steps for everything. */
function copies(): KeptCopies {
  const left = new Map<string, number>();
  const step = (what: string) => (partition: number) => {
    const name = `${what} ${partition}`;
    onStep();
    const steps = left.get(name) ?? 3;
    events.push(name);
    left.set(name, steps === 1 ? 3 : steps - 1);
    return steps > 1;
  };
  return new KeptCopies({
    index: { held: () => held, load: step('load'), drop: step('drop') },
    runtime,
    lingerMs: LINGER_MS,
    onOpened: (partition) => events.push(`opened ${partition}`),
    onDropped: (partition) => events.push(`dropped ${partition}`),
    onError: (error) => events.push(`fault: ${error}`),
  });
}

const pass = (ms: number) => runtime.until(runtime.sleep(ms));
const without = (what: string) => events.filter((event) => !event.startsWith(what));

/** Copies of which one was opened, and is no longer wanted. */
async function unwanted() {
  const own = copies();
  own.want([1]);
  await pass(1);
  own.want([]);
  return own;
}

describe('copies', () => {
  it('on disk are opened at the start, one after the other', async () => {
    held = [2, 5];
    await runtime.until(copies().openHeld());
    expect(events).toEqual(['load 2', 'load 2', 'load 2', 'opened 2', 'load 5', 'load 5', 'load 5', 'opened 5']);
  });

  it('that are wanted are opened, once', async () => {
    const own = copies();
    own.want([1]);
    own.want([1]);
    await pass(1);
    expect(without('load')).toEqual(['opened 1']);
  });

  it('that are no longer wanted are deleted after a while, and not queried before that', async () => {
    const own = copies();
    own.want([1, 2]);
    await pass(1);
    own.want([2]);
    await pass(LINGER_MS - 1);
    expect(without('load')).toEqual(['opened 1', 'opened 2']);
    await pass(2);
    expect(without('load').slice(2)).toEqual(['dropped 1', 'drop 1', 'drop 1', 'drop 1']);
  });

  it('that are wanted again in time stay', async () => {
    const own = await unwanted();
    await pass(LINGER_MS - 1);
    own.want([1]);
    await pass(2 * LINGER_MS);
    expect(without('load')).toEqual(['opened 1']);
  });

  it('that are wanted again while they are deleted are opened when that is done', async () => {
    const own = await unwanted();
    let again = false;
    onStep = () => {
      if (!again && events.at(-1) === 'dropped 1') {
        again = true;
        own.want([1]);
      }
    };
    await pass(LINGER_MS + 10);
    expect(without('load')).toEqual(['opened 1', 'dropped 1', 'drop 1', 'drop 1', 'drop 1', 'opened 1']);
  });

  it('on disk stay until it is known what is wanted', async () => {
    held = [3];
    const own = copies();
    await runtime.until(own.openHeld());
    await pass(2 * LINGER_MS);
    expect(without('load')).toEqual(['opened 3']);
    own.want([]);
    await pass(LINGER_MS + 1);
    expect(without('load').slice(1)).toEqual(['dropped 3', 'drop 3', 'drop 3', 'drop 3']);
  });

  it('that were reported to the group stay until it is known again what is wanted', async () => {
    const own = await unwanted();
    own.keepAll();
    await pass(2 * LINGER_MS);
    expect(without('load')).toEqual(['opened 1']);
    own.want([]);
    await pass(LINGER_MS + 1);
    expect(without('load').slice(1)).toEqual(['dropped 1', 'drop 1', 'drop 1', 'drop 1']);
  });

  it('are opened even if the store fails meanwhile and is replaced', async () => {
    let failures = 1;
    onStep = () => {
      if (failures > 0) {
        failures -= 1;
        throw new IdallocError('INDEX_RESTORING', 'the store failed');
      }
    };
    copies().want([1]);
    await pass(1);
    expect(without('load')).toEqual(['opened 1']);
  });

  it("report a disk that can't be used", async () => {
    onStep = () => {
      throw new IdallocError('INDEX_UNUSABLE', 'no space');
    };
    copies().want([1]);
    await pass(1);
    expect(events).toEqual([expect.stringContaining('no space')]);
  });

  it('are not touched after a stop', async () => {
    const own = await unwanted();
    own[Symbol.dispose]();
    await pass(2 * LINGER_MS);
    expect(without('load')).toEqual(['opened 1']);
    expect(runtime.pending).toBe(0);
  });
});
