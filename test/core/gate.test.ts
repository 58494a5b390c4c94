import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  clearGate,
  closedGate,
  closeGate,
  type Gate,
  type GateReason,
  type GateSource,
  gateReason,
  graceExpired,
  isClockReason,
} from '../../src/core/gate.ts';
import { monoMs } from '../../src/core/units.ts';

const at = monoMs;
const open = clearGate(closedGate(at(0)), 'process', at(5));

describe('the gate', () => {
  it('is closed while the process starts, and open once that is over', () => {
    expect(gateReason(closedGate(at(0)))).toBe('STARTING');
    expect(gateReason(open)).toBeUndefined();
    expect(open).not.toHaveProperty('closedSince');
  });

  it('stays closed until every source is clear', () => {
    const both = closeGate(closeGate(open, 'process', 'KAFKA_UNAVAILABLE', at(10)), 'identity', 'LEASE_LOST', at(20));
    const one = clearGate(both, 'identity', at(30));
    expect(gateReason(one)).toBe('KAFKA_UNAVAILABLE');
    expect(gateReason(clearGate(one, 'process', at(40)))).toBeUndefined();
  });

  it('names the most fundamental of several reasons', () => {
    const reasons: [GateSource, GateReason][] = [
      ['process', 'STARTING'],
      ['process', 'KAFKA_UNAVAILABLE'],
      ['identity', 'LEASE_SUSPENDED'],
      ['clock', 'CLOCK_BACKWARD'],
      ['identity', 'LAYOUT_EXHAUSTED'],
      ['process', 'STOPPING'],
    ];
    let gate = closedGate(at(0));
    for (const [source, reason] of reasons) {
      gate = closeGate(gate, source, reason, at(1));
      expect(gateReason(gate)).toBe(reason);
    }
  });

  it('holds one reason for each source, the last one', () => {
    const lost = closeGate(closeGate(open, 'identity', 'LEASE_SUSPENDED', at(10)), 'identity', 'LEASE_LOST', at(20));
    expect(gateReason(lost)).toBe('LEASE_LOST');
    expect(gateReason(clearGate(lost, 'identity', at(30)))).toBeUndefined();
  });

  it('distinguishes a wrong clock from reasons that pass by waiting', () => {
    const wrong = [
      'CLOCK_BACKWARD',
      'CLOCK_FORWARD',
      'CLOCK_FROZEN',
      'CLOCK_DRIFT',
      'CLOCK_AHEAD',
      'CLOCK_BEHIND',
    ] as const;
    const waited = ['STARTING', 'NO_IDENTITY', 'LEASE_SUSPENDED', 'PROCESS_PAUSED', 'ALL_CEILINGS_AHEAD'] as const;
    expect(wrong.map(isClockReason)).toEqual(wrong.map(() => true));
    expect([undefined, ...waited].map(isClockReason)).toEqual([undefined, ...waited].map(() => false));
  });

  it('counts the time closed from when it was last open, not from the latest reason', () => {
    const first = closeGate(open, 'clock', 'CLOCK_DRIFT', at(100));
    const second = clearGate(closeGate(first, 'identity', 'NO_IDENTITY', at(200)), 'clock', at(300));
    expect(second.closedSince).toBe(100);
    const again = closeGate(clearGate(second, 'identity', at(400)), 'process', 'KAFKA_UNAVAILABLE', at(500));
    expect(again.closedSince).toBe(500);
  });

  it('is over its grace time from the full grace time on, and never while open', () => {
    const gate = closeGate(open, 'clock', 'CLOCK_FROZEN', at(1000));
    expect(graceExpired(gate, at(10_999), 10_000)).toBe(false);
    expect(graceExpired(gate, at(11_000), 10_000)).toBe(true);
    expect(graceExpired(open, at(1e9), 10_000)).toBe(false);
  });

  it('does not open again once the process stops, whatever becomes ready late', () => {
    let gate = closeGate(open, 'process', 'STOPPING', at(10));
    gate = clearGate(gate, 'process', at(20));
    gate = closeGate(gate, 'process', 'STARTING', at(30));
    expect(gateReason(gate)).toBe('STOPPING');
  });

  it('is the same object when nothing changes, so that a listener sees changes only', () => {
    expect(clearGate(open, 'clock', at(10))).toBe(open);
    const closed = closeGate(open, 'process', 'KAFKA_UNAVAILABLE', at(10));
    expect(closeGate(closed, 'process', 'KAFKA_UNAVAILABLE', at(20))).toBe(closed);
    expect(gateReason(open)).toBeUndefined();
  });

  it('is closed exactly while some source has a reason, counted from the first one', () => {
    const change = fc.record({
      source: fc.constantFrom<GateSource>('identity', 'clock', 'process'),
      reason: fc.option(fc.constantFrom<GateReason>('NO_IDENTITY', 'CLOCK_DRIFT', 'KAFKA_UNAVAILABLE')),
    });
    fc.assert(
      fc.property(fc.array(change), (changes) => {
        let gate: Gate = closedGate(at(0));
        let since: number | undefined = 0;
        const held = new Map<GateSource, GateReason>([['process', 'STARTING']]);
        for (const [index, { source, reason }] of changes.entries()) {
          const now = at(index + 1);
          gate = reason === null ? clearGate(gate, source, now) : closeGate(gate, source, reason, now);
          if (reason === null) held.delete(source);
          else held.set(source, reason);
          since = held.size === 0 ? undefined : (since ?? now);
          expect(gateReason(gate) === undefined).toBe(held.size === 0);
          expect(gate.closedSince).toBe(since);
        }
      }),
    );
  });
});
