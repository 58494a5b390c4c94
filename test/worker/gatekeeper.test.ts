import { beforeEach, expect, test } from 'vitest';
import type { GateReason } from '../../src/core/gate.ts';
import { monoMs } from '../../src/core/units.ts';
import { createLogger } from '../../src/log.ts';
import { Gatekeeper } from '../../src/worker/gatekeeper.ts';

let nowMs: number;
let lines: { readonly level: string; readonly msg: string; readonly reason?: string; readonly detail?: string }[];
let gate: Gatekeeper;

beforeEach(() => {
  nowMs = 1_000;
  lines = [];
  const write = (text: string) => void lines.push(JSON.parse(text));
  const log = createLogger({ level: 'info', destination: { write } });
  gate = new Gatekeeper({ now: () => monoMs(nowMs), log });
});

test('listeners are called for each change of the reason, in the order of their registration, and for nothing else', () => {
  const heard: [string, GateReason | undefined][] = [];
  for (const name of ['first', 'second']) gate.onChange((reason) => heard.push([name, reason]));
  gate.clear('process');
  gate.clear('process');
  gate.close('identity', 'LEASE_SUSPENDED');
  gate.close('identity', 'LEASE_SUSPENDED', 'with another detail');
  gate.clear('identity');
  const changes = [undefined, 'LEASE_SUSPENDED', undefined] as const;
  expect(heard).toEqual(changes.flatMap((reason) => ['first', 'second'].map((name) => [name, reason])));
});

test('the detail is what was said last of the reason that is shown', () => {
  gate.close('process', 'KAFKA_UNAVAILABLE', 'no broker answers');
  expect([gate.reason(), gate.detail()]).toEqual(['KAFKA_UNAVAILABLE', 'no broker answers']);
  gate.close('process', 'KAFKA_UNAVAILABLE', 'one does');
  expect(gate.detail()).toBe('one does');
  gate.close('clock', 'CLOCK_DRIFT', 'by 3 s');
  const shown = { KAFKA_UNAVAILABLE: 'one does', CLOCK_DRIFT: 'by 3 s' } as const;
  expect(gate.detail()).toBe(shown[gate.reason() as keyof typeof shown]);
  gate.clear('process');
  expect([gate.reason(), gate.detail()]).toEqual(['CLOCK_DRIFT', 'by 3 s']);
  gate.clear('clock');
  expect([gate.reason(), gate.detail()]).toEqual([undefined, undefined]);
});

test('each change is one line: a warning when the gate closes, information when its reason changes or it opens', () => {
  gate.clear('process');
  gate.close('identity', 'LEASE_SUSPENDED', 'etcd is silent');
  gate.close('identity', 'LEASE_LOST', 'etcd forgot it');
  gate.clear('identity');
  const gist = lines.map(({ level, msg, reason, detail }) => [level, msg, reason, detail]);
  expect(gist).toEqual([
    ['info', 'gate open', undefined, undefined],
    ['warn', 'gate closed', 'LEASE_SUSPENDED', 'etcd is silent'],
    ['info', 'gate closed, reason changed', 'LEASE_LOST', 'etcd forgot it'],
    ['info', 'gate open', undefined, undefined],
  ]);
});

test('the grace time counts from the closing, and not while the gate is open', () => {
  gate.clear('process');
  nowMs += 60_000;
  expect(gate.graceExpired(10_000)).toBe(false);
  gate.close('identity', 'LEASE_SUSPENDED');
  nowMs += 9_999;
  gate.close('clock', 'CLOCK_DRIFT');
  expect(gate.graceExpired(10_000)).toBe(false);
  nowMs += 2;
  expect(gate.graceExpired(10_000)).toBe(true);
});
