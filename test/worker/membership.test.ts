import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { monoMs } from '../../src/core/units.ts';
import { createLogger, type Log } from '../../src/log.ts';
import { RUNTIME } from '../../src/runtime.ts';
import { Gatekeeper } from '../../src/worker/gatekeeper.ts';
import { type GroupMember, Membership } from '../../src/worker/request-service.ts';

/** A member of the group that completes leaving when the test says so. */
class FakeMember implements GroupMember {
  readonly leaving = Promise.withResolvers<void>();
  readonly calls: string[] = [];
  joined = true;

  start(): void {
    this.calls.push('start');
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

/** A membership whose members leave immediately, unless `slow`. */
function world({ slow = false } = {}) {
  const members: FakeMember[] = [];
  const gate = { open: false, graceExpired: false };
  const membership = new Membership({
    createMember: () => {
      const member = new FakeMember();
      members.push(member);
      if (!slow) member.leaving.resolve();
      return member;
    },
    isOpen: () => gate.open,
    graceExpired: () => gate.graceExpired,
    runtime: RUNTIME,
    log,
  });
  const change = (next: Partial<typeof gate>) => {
    Object.assign(gate, next);
    membership.gateChanged();
  };
  return { members, membership, change, gate };
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

describe('a worker', () => {
  it('joins when the gate opens, and not before', async () => {
    const { members, change } = world();
    await pass(10 * CHECK_MS);
    expect(members).toEqual([]);
    change({ open: true });
    expect(only(members).calls).toEqual(['start']);
  });

  it('joins once, however often the gate is checked', async () => {
    const { members, change } = world();
    change({ open: true });
    change({ open: true });
    await pass(10 * CHECK_MS);
    expect(only(members).calls.filter((call) => call === 'start')).toHaveLength(1);
  });

  it('joins even if the opening of the gate is not reported', async () => {
    const { members, gate } = world();
    gate.open = true;
    await pass(CHECK_MS);
    expect(only(members).calls).toContain('start');
  });

  it('is joined when its member is', () => {
    const { members, membership, change } = world();
    expect(membership.joined).toBe(false);
    change({ open: true });
    expect(membership.joined).toBe(true);
    only(members).joined = false;
    expect(membership.joined).toBe(false);
  });
});

describe('a gate that closes', () => {
  it('pauses the member immediately and keeps it in the group', async () => {
    const { members, change } = world();
    change({ open: true });
    change({ open: false });
    expect(only(members).calls.at(-1)).toBe('pause');
    await pass(10 * CHECK_MS);
    expect(only(members).calls).not.toContain('stop');
  });

  it('resumes the member when it opens again', () => {
    const { members, change } = world();
    change({ open: true });
    change({ open: false });
    change({ open: true });
    expect(only(members).calls.slice(-2)).toEqual(['pause', 'resume']);
  });

  it('resumes the member in the turn in which the last reason is cleared', () => {
    const gate = new Gatekeeper({ now: () => monoMs(0), log });
    const member = new FakeMember();
    const membership = new Membership({
      createMember: () => member,
      isOpen: () => gate.reason() === undefined,
      graceExpired: () => false,
      runtime: RUNTIME,
      log,
    });
    gate.onChange(() => membership.gateChanged());
    gate.clear('process');
    gate.close('identity', 'LEASE_SUSPENDED');
    gate.close('clock', 'CLOCK_DRIFT');
    gate.clear('identity');
    expect(member.calls.at(-1)).toBe('pause');
    gate.clear('clock');
    expect(member.calls.at(-1)).toBe('resume');
  });

  it('for longer than the grace time makes the member leave once, and a new one joins when it opens again', async () => {
    const { members, change, gate } = world();
    change({ open: true });
    change({ open: false });
    gate.graceExpired = true;
    await pass(CHECK_MS);
    expect(only(members).calls.at(-1)).toBe('stop');
    await pass(10 * CHECK_MS);
    expect(only(members).calls.filter((call) => call === 'stop')).toHaveLength(1);
    change({ open: true, graceExpired: false });
    expect(members).toHaveLength(2);
    expect(members[1]?.calls).toEqual(['start']);
  });
});

describe('leaving', () => {
  it('completes before the next join', async () => {
    const { members, change } = world({ slow: true });
    change({ open: true });
    change({ open: false, graceExpired: true });
    expect(members[0]?.calls.at(-1)).toBe('stop');
    change({ open: true, graceExpired: false });
    await pass(10 * CHECK_MS);
    expect(members).toHaveLength(1);
    members[0]?.leaving.resolve();
    await pass(0);
    expect(members).toHaveLength(2);
  });

  it('that fails does not prevent the next member from joining', async () => {
    const { members, change } = world({ slow: true });
    change({ open: true });
    change({ open: false, graceExpired: true });
    members[0]?.leaving.reject(new Error('no brokers'));
    await pass(0);
    change({ open: true, graceExpired: false });
    expect(members).toHaveLength(2);
  });
});

describe('stopping', () => {
  it('leaves the group, waits for that, and joins no more', async () => {
    const { members, change, membership } = world({ slow: true });
    change({ open: true });
    let stopped = false;
    const stopping = membership.stop().then(() => {
      stopped = true;
    });
    await pass(0);
    expect([only(members).calls.at(-1), stopped]).toEqual(['stop', false]);
    members[0]?.leaving.resolve();
    await stopping;
    change({ open: true });
    await pass(10 * CHECK_MS);
    expect(members).toHaveLength(1);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('waits for a member that is leaving already', async () => {
    const { members, change, membership } = world({ slow: true });
    change({ open: true });
    change({ open: false, graceExpired: true });
    const stopping = membership.stop();
    members[0]?.leaving.resolve();
    await stopping;
    expect(only(members).calls.filter((call) => call === 'stop')).toHaveLength(1);
  });

  it('does nothing for a worker that never joined', async () => {
    const { members, membership } = world();
    await membership.stop();
    expect(members).toEqual([]);
  });
});
