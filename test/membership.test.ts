import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { monoMs } from '../src/core/units.ts';
import { Gatekeeper } from '../src/gatekeeper.ts';
import type { Log } from '../src/log.ts';
import { createLogger } from '../src/log.ts';
import { type GroupMember, Membership } from '../src/membership.ts';

/** A stay in the group whose joining and leaving end when the test says so. */
class FakeMember implements GroupMember {
  readonly onCrash: (error: Error) => void;
  readonly joining = Promise.withResolvers<void>();
  readonly leaving = Promise.withResolvers<void>();
  readonly calls: string[] = [];

  constructor(onCrash: (error: Error) => void) {
    this.onCrash = onCrash;
  }

  start(): Promise<void> {
    this.calls.push('start');
    return this.joining.promise;
  }

  stop(): Promise<void> {
    this.calls.push('stop');
    return this.leaving.promise;
  }

  pause(): void {
    this.calls.push('pause');
  }

  resume(): void {
    this.calls.push('resume');
  }
}

const CHECK_MS = 500;
const log: Log = createLogger({ level: 'silent', destination: 'stderr' });

/** A membership whose members join and leave at once, unless `slow`. */
function world({ slow = false } = {}) {
  const members: FakeMember[] = [];
  const gate = { open: false, graceOver: false, ejected: false };
  const membership = new Membership({
    createMember: (onCrash) => {
      const member = new FakeMember(onCrash);
      members.push(member);
      if (!slow) {
        member.joining.resolve();
        member.leaving.resolve();
      }
      return member;
    },
    isOpen: () => gate.open,
    graceOver: () => gate.graceOver,
    isClockWrong: () => gate.ejected,
    log,
  });
  const change = (next: Partial<typeof gate>) => {
    Object.assign(gate, next);
    membership.gateChanged();
  };
  return { members, membership, change, gate };
}

/** A membership that its gate tells of each change, as in a worker, and the member that it has. */
async function behindGate(): Promise<{ gate: Gatekeeper; member: FakeMember }> {
  let membership: Membership | undefined;
  const gate = new Gatekeeper({ now: () => monoMs(0), log, onChange: () => membership?.gateChanged() });
  const made = Promise.withResolvers<FakeMember>();
  membership = new Membership({
    createMember: (onCrash) => {
      const member = new FakeMember(onCrash);
      member.joining.resolve();
      made.resolve(member);
      return member;
    },
    isOpen: () => gate.reason() === undefined,
    graceOver: () => false,
    isClockWrong: () => false,
    log,
  });
  gate.clear('process');
  const member = await made.promise;
  await pass(0);
  return { gate, member };
}

const pass = (delayMs: number) => vi.advanceTimersByTimeAsync(delayMs);
const only = (members: readonly FakeMember[]): FakeMember => {
  expect(members).toHaveLength(1);
  return members[0] as FakeMember;
};

beforeEach(() => {
  vi.useFakeTimers();
});

afterEach(() => {
  vi.useRealTimers();
});

describe('joining', () => {
  it('happens when the gate opens, and not before', async () => {
    const { members, change } = world();
    await pass(10 * CHECK_MS);
    expect(members).toEqual([]);
    change({ open: true });
    expect(only(members).calls).toEqual(['start']);
  });

  it('happens once, however often the gate is looked at', async () => {
    const { members, change } = world();
    change({ open: true });
    change({ open: true });
    await pass(10 * CHECK_MS);
    expect(only(members).calls.filter((call) => call === 'start')).toHaveLength(1);
  });

  it('happens also when nobody tells that the gate has opened', async () => {
    const { members, gate } = world();
    gate.open = true;
    await pass(CHECK_MS);
    expect(only(members).calls).toContain('start');
  });

  it('that fails is tried again with a new member, and the failed one is stopped', async () => {
    const { members, change } = world({ slow: true });
    change({ open: true });
    members[0]?.joining.reject(new Error('no brokers'));
    await pass(0);
    expect(members[0]?.calls).toEqual(['start', 'stop']);
    await pass(10 * CHECK_MS);
    expect(members).toHaveLength(1);
    members[0]?.leaving.resolve();
    await pass(CHECK_MS);
    expect(members).toHaveLength(2);
  });

  it('waits a while after a failure', async () => {
    const { members, change } = world({ slow: true });
    change({ open: true });
    members[0]?.joining.reject(new Error('no brokers'));
    members[0]?.leaving.resolve();
    await pass(CHECK_MS - 1);
    expect(members).toHaveLength(1);
    await pass(1);
    expect(members).toHaveLength(2);
  });
});

describe('a gate that closes', () => {
  it('pauses the member at once and keeps it in the group', async () => {
    const { members, change } = world();
    change({ open: true });
    await pass(0);
    change({ open: false });
    expect(only(members).calls.at(-1)).toBe('pause');
    await pass(10 * CHECK_MS);
    expect(only(members).calls).not.toContain('stop');
  });

  it('resumes the member when it opens again', async () => {
    const { members, change } = world();
    change({ open: true });
    await pass(0);
    change({ open: false });
    change({ open: true });
    expect(only(members).calls.slice(-2)).toEqual(['pause', 'resume']);
  });

  it('resumes the member in the turn in which the last reason goes', async () => {
    const { gate, member } = await behindGate();
    gate.close('identity', 'LEASE_SUSPENDED');
    gate.close('index', 'INDEX_RESTORING');
    gate.clear('identity');
    expect(member.calls.at(-1)).toBe('pause');
    gate.clear('index');
    expect(member.calls.at(-1)).toBe('resume');
  });

  it('for a wrong clock makes the member leave at once, and a new one joins when it opens again', async () => {
    const { members, change } = world();
    change({ open: true });
    await pass(0);
    change({ open: false, ejected: true });
    await pass(0);
    expect(only(members).calls.slice(-2)).toEqual(['pause', 'stop']);
    change({ open: true, ejected: false });
    await pass(0);
    expect(members.map(({ calls }) => calls.includes('stop'))).toEqual([true, false]);
  });

  it('for a wrong clock replaces also a member that was joining, though it is open again by then', async () => {
    const { members, change } = world({ slow: true });
    change({ open: true });
    change({ open: false, ejected: true });
    change({ open: true, ejected: false });
    members[0]?.joining.resolve();
    members[0]?.leaving.resolve();
    await pass(2 * CHECK_MS);
    expect(members[0]?.calls).not.toContain('resume');
    expect(members[0]?.calls.at(-1)).toBe('stop');
    expect(members).toHaveLength(2);
  });

  it('for longer than the grace makes the member leave, and a new one joins when it opens again', async () => {
    const { members, change, gate } = world();
    change({ open: true });
    await pass(0);
    change({ open: false });
    gate.graceOver = true;
    await pass(CHECK_MS);
    expect(only(members).calls.at(-1)).toBe('stop');
    await pass(10 * CHECK_MS);
    expect(only(members).calls.filter((call) => call === 'stop')).toHaveLength(1);
    change({ open: true, graceOver: false });
    expect(members).toHaveLength(2);
    expect(members[1]?.calls).toEqual(['start']);
  });

  it('while the member joins pauses it at once too', async () => {
    const { members, change } = world({ slow: true });
    change({ open: true });
    change({ open: false });
    expect(only(members).calls).toEqual(['start', 'pause']);
    members[0]?.joining.resolve();
    await pass(CHECK_MS);
    expect(only(members).calls.at(-1)).toBe('pause');
  });
});

describe('a crashed member', () => {
  it('is stopped and replaced', async () => {
    const { members, change } = world();
    change({ open: true });
    await pass(0);
    members[0]?.onCrash(new Error('the consumer ended'));
    await pass(2 * CHECK_MS);
    expect(members[0]?.calls).toContain('stop');
    expect(members).toHaveLength(2);
    await pass(10 * CHECK_MS);
    expect(members[1]?.calls).not.toContain('stop');
  });

  it('is replaced also when it crashed while it joined', async () => {
    const { members, change } = world({ slow: true });
    change({ open: true });
    members[0]?.onCrash(new Error('the consumer ended'));
    members[0]?.joining.resolve();
    members[0]?.leaving.resolve();
    await pass(3 * CHECK_MS);
    expect(members).toHaveLength(2);
  });

  it('that was replaced can not end its successor', async () => {
    const { members, change } = world();
    change({ open: true });
    await pass(0);
    members[0]?.onCrash(new Error('the consumer ended'));
    await pass(2 * CHECK_MS);
    members[0]?.onCrash(new Error('and once more'));
    await pass(10 * CHECK_MS);
    expect(members).toHaveLength(2);
    expect(members[1]?.calls).not.toContain('stop');
  });

  it('is replaced only once the gate is open', async () => {
    const { members, change } = world();
    change({ open: true });
    await pass(0);
    change({ open: false });
    members[0]?.onCrash(new Error('the consumer ended'));
    await pass(10 * CHECK_MS);
    expect(only(members).calls).toContain('stop');
    change({ open: true });
    expect(members).toHaveLength(2);
  });
});

describe('steps', () => {
  it('never overlap: nobody joins while one leaves', async () => {
    const { members, change } = world({ slow: true });
    change({ open: true });
    members[0]?.joining.resolve();
    await pass(0);
    change({ open: false, graceOver: true });
    expect(members[0]?.calls.at(-1)).toBe('stop');
    change({ open: true, graceOver: false });
    await pass(10 * CHECK_MS);
    expect(members).toHaveLength(1);
    members[0]?.leaving.resolve();
    await pass(CHECK_MS);
    expect(members).toHaveLength(2);
  });

  it('never overlap: nobody leaves while it joins', async () => {
    const { members, change } = world({ slow: true });
    change({ open: true });
    change({ open: false, graceOver: true });
    await pass(10 * CHECK_MS);
    expect(only(members).calls).not.toContain('stop');
    members[0]?.joining.resolve();
    await pass(CHECK_MS);
    expect(only(members).calls.at(-1)).toBe('stop');
  });

  it('go on after a member that could not leave', async () => {
    const { members, change } = world({ slow: true });
    change({ open: true });
    members[0]?.joining.resolve();
    await pass(0);
    change({ open: false, graceOver: true });
    members[0]?.leaving.reject(new Error('no brokers'));
    await pass(0);
    change({ open: true, graceOver: false });
    expect(members).toHaveLength(2);
  });
});

describe('stopping', () => {
  it('pauses at once, leaves the group, and joins no more', async () => {
    const { members, change, membership } = world();
    change({ open: true });
    await pass(0);
    await membership.stop();
    expect(only(members).calls.slice(-2)).toEqual(['pause', 'stop']);
    change({ open: true });
    await pass(10 * CHECK_MS);
    expect(members).toHaveLength(1);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('waits for a join that is under way, and leaves after it', async () => {
    const { members, change, membership } = world({ slow: true });
    change({ open: true });
    let stopped = false;
    const stopping = membership.stop().then(() => {
      stopped = true;
    });
    await pass(0);
    expect(only(members).calls).toEqual(['start', 'pause']);
    members[0]?.joining.resolve();
    await pass(0);
    expect(only(members).calls.at(-1)).toBe('stop');
    expect(stopped).toBe(false);
    members[0]?.leaving.resolve();
    await stopping;
  });

  it('has nothing to do for a worker that never joined', async () => {
    const { members, membership } = world();
    await membership.stop();
    expect(members).toEqual([]);
  });
});
