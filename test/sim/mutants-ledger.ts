import { type Mutant, patch, unitTest } from './mutant.ts';

/** Bugs in what gives each request one batch: the ledger, its index, deciding and answering. */
export const LEDGER_MUTANTS: readonly Mutant[] = [
  {
    name: 'settle ignores the base offset',
    patches: [
      patch(
        'src/ledger/ledger.ts',
        '      await this.#of(partition).reached(baseOffset);\n    }\n    this.#requireTrusted',
        '    }\n    this.#requireTrusted',
      ),
      patch('src/ledger/ledger.ts', 'offset: baseOffset + i, key', 'offset: end + i, key'),
    ],
  },
  {
    name: 'an adopted copy goes on with the request offsets of another topic',
    scenario: 'failover',
    patches: [patch('src/cli/namespace/adopt-run.ts', 'headers: adoptionHeaders(now)', 'headers: {}')],
  },
  {
    name: 'no answer taken as success',
    patches: [
      patch(
        'src/ledger/ledger.ts',
        'await this.#catchUpAfter(partition, error);\n      throw error;',
        'await this.#catchUpAfter(partition, error);\n      return { baseOffset: this.#index.end(partition), appendedAtMs: 0 };',
      ),
    ],
  },
  {
    name: 'offsets committed before replies',
    patches: [
      patch(
        'src/pipeline/request-session.ts',
        'await this.#partLanes.begin(() => work().then(done));',
        'done();\n        await this.#partLanes.begin(work);',
      ),
    ],
  },
  {
    name: 'offsets committed past an earlier part that is not answered',
    patches: [
      patch(
        'src/pipeline/lanes.ts',
        'part.isDone = true;\n      this.#advance();',
        'this.#onDone(until);\n      then?.();',
      ),
    ],
  },
  {
    name: 'offsets committed past unanswered large requests',
    patches: [
      patch(
        'src/pipeline/request-session.ts',
        'const next = Math.min(small, ...this.#deferred.map(({ queue }) => queue.first ?? small));',
        'const next = small;',
      ),
    ],
  },
  {
    name: 'of a dense batch only the last record is deferred',
    firstSeed: 5,
    patches: [
      patch(
        'src/pipeline/deferred.ts',
        'const from = Math.max(record.since ?? record.offset, this.#through);',
        'const from = Math.max(record.offset, this.#through);',
      ),
    ],
  },
  {
    name: 'offsets committed past an unread dense batch',
    firstSeed: 5,
    patches: [patch('src/pipeline/request-session.ts', 'queue.first ?? small)', 'queue.held[0]?.offset ?? small)')],
  },
  {
    name: 'large requests of an earlier session are forgotten',
    patches: [
      patch(
        'src/pipeline/request-session.ts',
        'position && position.next < position.small ?',
        'position && position.next > position.small ?',
      ),
    ],
  },
  {
    name: 'a position forgets which requests wait for debts',
    patches: [
      patch(
        'src/pipeline/request-session.ts',
        'this.#position = { next, small, ...(debtors.length > 0 && { debtors }) };',
        'this.#position = { next, small };',
      ),
    ],
  },
  {
    name: 'index applied before the append is acknowledged',
    patches: [
      patch(
        'src/ledger/ledger.ts',
        'const appended = await this.#append(partition, drafts, release);',
        `const guess = this.#index.end(partition);
    this.#index.apply(partition, drafts.entries.map((drafted, i) => ({ ...drafted, offset: guess + i, appendedAtMs: 0 })));
    const appended = await this.#append(partition, drafts, release);`,
      ),
    ],
  },
  {
    name: "a loser near the log's start applied",
    scenario: 'retention',
    patches: [
      patch(
        'src/ledger/decided.ts',
        "return entry.kind === 'numbers' || (entry.end >= origin && entry.end > before);",
        'return true;',
      ),
    ],
  },
  {
    name: 'a restore overtaken by retention continues',
    scenario: 'retention',
    // Reading detects this by the offset, and the copy by the bounds: each is enough.
    patches: [
      patch('src/ledger/read-position.ts', 'if (due < low) return', 'if (target === 0 && due < low) return'),
      patch(
        'src/adapters/kafka/ledger-reading.ts',
        'copy.invalidate(`offset',
        'void [position, end]; false && copy.invalidate(`offset',
      ),
    ],
  },
  {
    name: 'two appends in flight for one partition',
    patches: [
      patch('src/ledger/ledger.ts', 'return mutexOf(this.#turns, partition).run(async', 'return new Mutex().run(async'),
    ],
  },
  {
    name: 'a discarded index is not restored',
    patches: [patch('src/worker/ledger-service.ts', 'partition.restore(cause); //', 'void partition; //')],
  },
  {
    name: 'what is saved is never synced',
    patches: [patch('src/worker/ledger-service.ts', 'this.#syncing ??=', 'if (this.partitions < 0) this.#syncing ??=')],
  },
  {
    name: 'a horizon that forgets too much',
    patches: [
      patch(
        'src/pipeline/rulings.ts',
        'const horizon = deps.index.horizon(partition);',
        'const horizon = deps.index.through(partition);',
      ),
    ],
  },
  {
    name: 'a marker that claims all requests',
    patches: [
      patch(
        'src/ledger/ledger.ts',
        'const atLeast = this.#index.horizon(partition) === undefined ? requestEnd - 1 : -1;',
        'const atLeast = requestEnd - 1;',
      ),
    ],
  },
  {
    name: 'a closed gate counts requests as answered',
    unit: unitTest(
      'test/pipeline/request-session.test.ts',
      'lets the part in progress finish when its gate closes, and leaves the rest for later',
    ),
    patches: [
      patch(
        'src/pipeline/request-session.ts',
        'const due = () => records.slice(this.#firstDue(records));',
        'const due = () => (this.#lane.isCurrent ? records.slice(this.#firstDue(records)) : []);',
      ),
    ],
  },
  {
    name: 'a request served outside its home partition',
    patches: [patch('src/pipeline/rulings.ts', 'if (home === partition) return undefined;', 'return undefined;')],
  },
  {
    name: 'a forwarded request as young as its copy',
    patches: [
      patch(
        'src/pipeline/rulings.ts',
        'const firstMs = earliestDecisionMs(request.route);',
        'const firstMs = undefined as number | undefined;',
      ),
    ],
  },
  {
    name: 'a log without its head taken for complete',
    // Most simulations use the index in memory; the real one has its own tests.
    firstSeed: 10,
    patches: [patch('test/support/memory-index.ts', 'since: from === 0 && through === -1 ? 0 : undefined', 'since: 0')],
  },
  {
    name: 'offsets committed before requests are forwarded',
    patches: [
      patch(
        'src/pipeline/part.ts',
        'forward(deps, partition, outcomes)] as const',
        '(void forward(deps, partition, outcomes).catch(() => undefined), Promise.resolve([]))] as const',
      ),
    ],
  },
  {
    name: 'offsets committed before their dead letters are acknowledged',
    patches: [
      patch(
        'src/pipeline/part.ts',
        'await publishDeadLetters(deps, partition, rejections);',
        'void publishDeadLetters(deps, partition, rejections).catch(() => undefined);',
      ),
    ],
  },
  {
    name: 'a range letter without one of its records',
    patches: [patch('src/pipeline/outgoing.ts', 'others.push(rejection);', 'others.at(-2) ?? others.push(rejection);')],
  },
  {
    name: 'the home of a request is that of its correlation ID, not of its request ID',
    firstSeed: 8,
    patches: [
      patch(
        'src/pipeline/intake.ts',
        'const home = homeOf(Slice.of(homeKeyOf(request)));',
        'const home = homeOf(Slice.of(request.correlationId));',
      ),
    ],
  },
  {
    name: 'a decision is kept under the correlation ID, not the request ID',
    firstSeed: 8,
    patches: [
      patch('src/pipeline/intake.ts', 'const id = decidingIdOf(request);', 'const id = request.correlationId;'),
    ],
  },
  {
    name: 'a forwarded request loses its request ID',
    firstSeed: 8,
    patches: [
      patch(
        'src/pipeline/outgoing.ts',
        'Object.assign(headersOf(record), routeHeaders(origin ?? own, hops + 1, to));',
        "Object.assign(headersOf(record), routeHeaders(origin ?? own, hops + 1, to), { 'idalloc-request-id': null });",
      ),
    ],
  },
  {
    name: 'a reply repeats the request ID instead of the correlation ID',
    firstSeed: 8,
    patches: [
      patch(
        'src/pipeline/outgoing.ts',
        'idReplyBytes({ correlationId: correlation, batch: entry.batch }, encoding)',
        'idReplyBytes({ correlationId: request.requestId ?? correlation, batch: entry.batch }, encoding)',
      ),
    ],
  },
  {
    name: 'tries of a request with other correlation IDs share one reply',
    firstSeed: 8,
    patches: [
      patch(
        'src/pipeline/part.ts',
        "  if (requestId !== undefined) fields.push(correlation.toString('hex')); // which the key does not show\n",
        '',
      ),
    ],
  },
];

/** Bugs in reading decisions back from the ledger, renewing them, and keeping copies of the index. */
export const COPY_MUTANTS: readonly Mutant[] = [
  {
    name: 'an entry that is gone counts as unknown',
    scenario: 'retention',
    patches: [
      patch('src/ledger/decided.ts', 'return before === NOWHERE ? undefined : FORGOTTEN;', 'return undefined;'),
    ],
  },
  {
    name: 'the first of several keys with one hash taken',
    patches: [
      patch('src/ledger/decided.ts', '(record.key === null || !key.equals(record.key))', 'record.key === null'),
    ],
  },
  {
    name: 'a renewal written for the first request',
    unit: unitTest(
      'test/pipeline/retention.test.ts',
      'has it renewed in the ledger: the same batch once more, for the later request',
    ),
    patches: [
      patch(
        'src/pipeline/decide.ts',
        'const again = { requestOffset: record.offset, ...view };',
        'const again = view;',
      ),
      patch(
        'src/pipeline/decide.ts',
        'function renewalOf({ key, record }: Accepted',
        'function renewalOf({ key }: Accepted',
      ),
    ],
  },
  {
    name: 'decisions never renewed',
    patches: [
      patch(
        'src/pipeline/rulings.ts',
        'return accepted.record.timestampMs - decided.newestMs >= renewAfterMs;',
        'return renewAfterMs < 0;',
      ),
    ],
  },
  {
    name: 'a loser keeps a decision young',
    unit: unitTest('test/pipeline/retention.test.ts', 'has it renewed even if a loser is younger than the decision'),
    patches: [
      patch('src/ledger/decided.ts', '        newestMs = appendedAtMs;\n', ''),
      patch(
        'src/ledger/decided.ts',
        '      if (hasDecision(entry, before, origin)) {',
        '      newestMs = appendedAtMs;\n      if (hasDecision(entry, before, origin)) {',
      ),
    ],
  },
  {
    name: 'a dropped copy counts as present',
    patches: [patch('src/ledger/partition.ts', "  drop(): void {\n    this.#mode = 'absent';\n", '  drop(): void {\n')],
  },
  {
    name: 'an unrecognised copy reported to the group',
    scenario: 'lost-tail',
    patches: [patch('src/worker/request-service.ts', '.filter(({ isRecognised }) => isRecognised)', '')],
  },
  {
    name: 'decisions by an incomplete copy',
    patches: [
      patch(
        'src/ledger/partition.ts',
        'this.#position.isRecognised && end >= this.#target) return undefined;',
        'this.#position.isRecognised) return undefined;',
      ),
    ],
  },
  {
    name: 'a partition assigned to a member without a copy of it',
    scenario: 'take-over',
    patches: [patch('src/kafka/loops/planner.ts', 'able.filter((one) => lags.isCaughtUp(one, partition))', 'able')],
  },
];

const RULINGS = 'src/pipeline/rulings.ts';
const GROUP = 'src/cli/replay/group.ts';
const PLAN = 'src/cli/replay/plan.ts';

/** Mistakes about what was answered before an operator replayed. */
export const REPLAY_MUTANTS: readonly Mutant[] = [
  {
    name: 'replay: the statement is ignored',
    scenario: 'replays',
    patches: [
      patch(
        RULINGS,
        'if (!request.route.wasAnswered && record.offset >= index.answeredBelow(partition)) return undefined;',
        'if (!request.route.wasAnswered || record.offset < -index.answeredBelow(partition)) return undefined;',
      ),
    ],
  },
  {
    name: 'replay: copies are forwarded without a mark',
    scenario: 'replays',
    patches: [
      patch(
        RULINGS,
        'const wasAnswered = request.route.wasAnswered || record.offset < answeredBelow;',
        'const wasAnswered = request.route.wasAnswered && record.offset < answeredBelow;',
      ),
    ],
  },
  {
    name: 'replay: the offset moves before the statement',
    scenario: 'replays',
    patches: [
      patch(GROUP, '  await stateAnswered(log, plan, ledgerEnds);\n', ''),
      patch(
        GROUP,
        '  await setOffsets(source, groupId, topics.requests, { clusterId, offsets: new Map(offsets) });',
        '  await setOffsets(source, groupId, topics.requests, { clusterId, offsets: new Map(offsets) });\n  await stateAnswered(log, plan, ledgerEnds);',
      ),
    ],
  },
  {
    name: 'replay: the second one says less',
    scenario: 'replays',
    patches: [patch(PLAN, 'Math.max(to, stated)', 'Math.max(to, Math.min(0, stated))')],
  },
  {
    name: 'replay: what waits counts as answered',
    scenario: 'replays',
    patches: [patch(PLAN, 'Math.max(to, stated)', 'Math.max(to, stated, position?.small ?? 0)')],
  },
  {
    name: 'replay: the offset moves though the statement is void',
    scenario: 'replays',
    patches: [patch(GROUP, 'if (baseOffset === at) break;', 'if (baseOffset >= at) break;')],
  },
];
