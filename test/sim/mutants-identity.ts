import { type Mutant, patch, unitTest } from './mutant.ts';

/** Bugs in what makes IDs unique and rising, over Kafka and HTTP: ceilings, fences, witnesses, clocks. */
export const IDENTITY_MUTANTS: readonly Mutant[] = [
  {
    name: 'no nonce read-back',
    firstSeed: 9,
    patches: [
      patch(
        'src/identity/protocol.ts',
        'const found = readBack(attempted, owner, ceiling);',
        `const stored = swap && ceiling ? { ...swap, modRevision: ceiling.modRevision } : attempted.stored;
  if (owner?.createRevision !== attempted.fence) return { kind: 'lost', why: 'the owner key is gone' };
  const found = { ...readBack({ ...attempted, stored }, owner, ceiling), kind: 'ours' as const, term: { ...attempted, stored } };`,
      ),
    ],
  },
  {
    name: '>= in place of == in the swap',
    // The port offers equality only, so the bug is in the comparison of the simulated store.
    patches: [
      patch(
        'test/identity/fake-etcd.ts',
        '(kv?.modRevision ?? 0n) === compare.modRevision',
        '(kv?.modRevision ?? 0n) >= compare.modRevision',
      ),
    ],
  },
  {
    name: 'start at the own clock rather than the ceiling',
    firstSeed: 12,
    patches: [
      patch('src/identity/choose.ts', 'waitMs: ceilingWaitMs(layout, ceiling.ticks, now)', 'waitMs: 0'),
      patch('src/identity/choose.ts', 'import { ceilingWaitMs, MAX', 'import { MAX'),
      patch('src/identity/term.ts', 'from: ceiling.ticks,', 'from: toTicks(layout, sent.wall),'),
    ],
  },
  {
    name: 'deadline counted from the answer',
    unit: unitTest(
      'test/identity/heartbeat.test.ts',
      'counts from before the keep-alive was sent, not from its answer',
    ),
    patches: [
      patch(
        'src/identity/identity.ts',
        'const renewed = { ...found.term, sent };',
        'const renewed = { ...found.term, sent: this.#settings.readClock().reading };',
      ),
    ],
  },
  {
    name: 'ceiling attached to the lease',
    patches: [
      patch(
        'src/identity/protocol.ts',
        '{ put: ceiling, value: encodeCeiling(attempt.swap) }',
        '{ put: ceiling, value: encodeCeiling(attempt.swap), leaseId: attempt.leaseId }',
      ),
    ],
  },
  {
    name: 'ticks restarted within the back-fill window',
    patches: [
      patch(
        'src/core/generator.ts',
        'ticks(Math.max(nextTicks, from,',
        'ticks(Math.max(nowTicks < nextTicks + BACKFILL_MS ? from : nextTicks, from,',
      ),
    ],
  },
  {
    name: 'a range off by one',
    patches: [
      patch(
        'src/core/generator.ts',
        'nextSequence = full ? 0 : sequence + size;',
        'nextSequence = full ? 0 : sequence + size - 1;',
      ),
    ],
  },
  {
    name: 'ranges are cut as if their IDs followed each other',
    patches: [patch('src/core/generator.ts', 'first += step * BigInt(size);', 'first += BigInt(size);')],
  },
  {
    name: 'over HTTP two callers get one batch',
    patches: [
      patch(
        'src/http/issuer.ts',
        'taken.resolve(await this.#allocate(call));',
        `const batch = await this.#allocate(call);
      taken.resolve(batch);
      share.waiting.find((next) => next.count === count)?.taken.resolve(batch);`,
      ),
    ],
  },
  {
    name: 'over HTTP a closed gate is ignored',
    unit: unitTest('test/http/api.test.ts', "has Retry-After and the gate's reason: %s"),
    patches: [patch('src/http/issuer.ts', '    this.requireOpen();\n    rateLimit?.take', '    rateLimit?.take')],
  },
  {
    name: 'the clock is never compared again while nothing is appended',
    scenario: 'drift',
    patches: [
      patch(
        'src/worker/identity-holder.ts',
        'for (const sample of await ports.sampleBrokerClocks()) clock.recordDrift(sample);',
        'await ports.sampleBrokerClocks();',
      ),
    ],
  },
  {
    name: 'witness ignored',
    scenario: 'etcd-loss',
    patches: [
      patch('src/identity/protocol.ts', '  requireNotRestored(view, snapshot, descriptor);\n', ''),
      patch('src/identity/protocol.ts', '  requireNoRival(view, own);\n', ''),
      patch('src/identity/protocol.ts', '    requireUnused(view, settings.namespace.descriptor);\n', ''),
      patch('src/identity/namespace.ts', '      requireNotRestored(view, snapshot, descriptor);\n', ''),
      patch('src/identity/namespace.ts', '    requireUnused(view, wanted);\n', ''),
    ],
  },
  {
    name: 'etcd read before the witness',
    firstSeed: 9,
    patches: [
      patch(
        'src/identity/protocol.ts',
        'const view = await witness.read();\n  const snapshot = await readSnapshot(etcd, keys);',
        'const snapshot = await readSnapshot(etcd, keys);\n  const view = await witness.read();',
      ),
    ],
  },
  {
    name: 'a rebuild from the ceilings alone',
    scenario: 'etcd-loss',
    patches: [
      patch(
        'src/identity/rebuild.ts',
        'const used = Math.max(toTicks(layout, now), ledger ?? 0, ceilings ?? 0, witnesses ?? 0);',
        'const used = ceilings ?? 0;',
      ),
    ],
  },
  {
    name: 'a UUID that is not compared',
    scenario: 'late-witness',
    patches: [patch('src/identity/witness.ts', 'return seal === uuid ? undefined : seal;', 'return undefined;')],
  },
  {
    name: 'the seal of a rebuild written after reading',
    scenario: 'late-witness',
    patches: [
      patch(
        'src/identity/rebuild.ts',
        '  await witness.write([{ seal: wanted.uuid }]);\n  const found = await readStoredNamespace(etcd, witness, keys);',
        '  const found = await readStoredNamespace(etcd, witness, keys);\n  await witness.write([{ seal: wanted.uuid }]);',
      ),
    ],
  },
  {
    name: 'one nonce for all rebuilds',
    scenario: 'slow-readers',
    patches: [patch('src/identity/rebuild.ts', `\`\${REBUILT}\${wanted.uuid}\``, 'REBUILT')],
  },
  {
    name: 'the descriptor written without comparing its absence',
    scenario: 'mixed',
    patches: [patch('src/identity/namespace.ts', 'tryTransact(etcd, [absent, there],', 'tryTransact(etcd, [there],')],
  },
  {
    // A nonce alone decides nothing: leases identify claims; fence, compared revision and ticks identify raises.
    name: 'a term identified by its fence alone',
    unit: unitTest(
      'test/identity/witness.test.ts',
      'that finds the witness of %s before its own fails, and its lease is revoked',
    ),
    patches: [
      patch(
        'src/identity/witness.ts',
        'return fence === own.fence && BigInt.asUintN(LEASE_BITS, leaseId - own.leaseId) <= BigInt(own.silentWrites);',
        'return fence === own.fence && leaseId !== 0n;',
      ),
    ],
  },
  {
    name: 'the next witness under the key of one without a response',
    scenario: 'overtaken-witness',
    patches: [
      patch(
        'src/identity/identity.ts',
        'silentWrites: found.term.silentWrites + 1',
        'silentWrites: found.term.silentWrites',
      ),
    ],
  },
  {
    name: 'a claim witnessed again under the key of one without a response',
    scenario: 'overtaken-witness',
    patches: [
      patch('src/identity/identity.ts', 'silentWrites: attempt.silentWrites + 1', 'silentWrites: attempt.silentWrites'),
    ],
  },
  {
    name: 'the own witness without a response taken for a rival',
    scenario: 'overtaken-witness',
    patches: [patch('src/identity/witness.ts', ' && !isOfTerm(other, own)', '')],
  },
  {
    name: 'no suspension after a pause of the process',
    unit: unitTest('test/worker/guarded-clock.test.ts', 'reports a pause of the process before it returns the reading'),
    patches: [
      patch(
        'src/worker/guarded-clock.ts',
        "if (pausedMs > MAX_PAUSE_MS && verdict.kind !== 'eject') this.#onPause?.(reading);",
        '',
      ),
    ],
  },
  {
    name: 'the allocator reads the clock without its guard',
    unit: unitTest(
      'test/worker/guarded-clock.test.ts',
      'is the guarded one: it is ejected by a step back that nobody has read yet',
    ),
    patches: [
      patch(
        'src/worker/worker.ts',
        'readClock: () => clock.read(),',
        "readClock: () => ({ reading: clockReader(runtime.wallMs, runtime.monotonicMs)(), verdict: { kind: 'steady' } }),",
      ),
    ],
  },
  {
    name: 'a heartbeat from before a pause counts',
    scenario: 'asleep',
    patches: [
      patch(
        'src/identity/identity.ts',
        'const proven = term.sent.mono >= this.#provenFromMs;',
        'const proven = this.#provenFromMs <= Number.POSITIVE_INFINITY;',
      ),
    ],
  },
  {
    name: 'the witness not read to its end',
    unit: unitTest(
      'test/adapters/kafka/witness-topic.test.ts',
      'waits until it was read, and times out when it is not',
    ),
    patches: [
      patch('src/adapters/kafka/witness-topic.ts', 'await follower.reached(base + records.length - 1, over);', ''),
    ],
  },
  {
    name: 'a refused raise followed by the next one without a pause',
    scenario: 'full-etcd',
    patches: [patch('src/identity/runner.ts', ' : RETRY_MS);', ' : 0);')],
  },
  {
    name: 'no raise while another one counts as unanswered, as a refused one does',
    scenario: 'full-etcd',
    patches: [
      patch(
        'src/identity/term.ts',
        'if (raised === undefined) return undefined;',
        'if (raised === undefined || term.unanswered.length > 0) return undefined;',
      ),
      patch('src/identity/protocol.ts', "error === undefined || error.code === 'ETCD_REFUSED'", 'error === undefined'),
    ],
  },
  {
    name: 'a refused attempt to acquire followed by a longer pause each time',
    scenario: 'full-etcd',
    patches: [
      patch(
        'src/identity/runner.ts',
        "outcome.error.code === 'ETCD_REFUSED' ? leftMs(RETRY_MS) : this.#backoff.nextMs()",
        '4 * this.#backoff.nextMs()',
      ),
    ],
  },
  {
    name: 'a worker ID claimed without comparing the clock',
    unit: unitTest('test/identity/acquire.test.ts', 'tolerates one other worker whose clock disagrees, but not two'),
    patches: [
      patch(
        'src/identity/choose.ts',
        "choice.kind === 'take' ? await checkClock(settings, snapshot) : undefined",
        'undefined && (await checkClock(settings, snapshot))',
      ),
    ],
  },
];
