import { type Mutant, patch, unitTest } from './mutant.ts';

/** Bugs in reading, writing and group membership. */
export const KAFKA_MUTANTS: readonly Mutant[] = [
  {
    name: 'replies acknowledged by the leader alone',
    firstSeed: 14,
    patches: [
      patch(
        'src/kafka/loops/leader-calls.ts',
        'acks: -1',
        "acks: appending.purpose === 'publish' ? (1 as unknown as -1) : -1",
      ),
    ],
  },
  {
    name: 'ledger entries acknowledged by the leader alone',
    patches: [
      patch('src/kafka/loops/leader-calls.ts', 'acks: -1', "acks: topic === 'id.ledger' ? (1 as unknown as -1) : -1"),
    ],
  },
  {
    name: 'a fetch session in which a partition keeps its first position',
    patches: [patch('src/kafka/loops/fetch-session.ts', 'known.position.offset !== offset ||', '')],
  },
  {
    name: 'offsets committed for partitions that are gone',
    patches: [
      patch('src/worker/request-group.ts', 'for (const partition of removed) this.#end(partition);', ''),
      patch('src/kafka/loops/member.ts', 'if (isPresent() && foreign !== undefined)', 'if (foreign === -1)'),
    ],
  },
  {
    name: 'an offset that no worker committed is believed',
    patches: [
      patch(
        'src/codec/request-position.ts',
        'if ((written ?? digest) === undefined || small < next) return undefined;',
        'if ((written ?? digest) === undefined || small < next) return { next, small: next };',
      ),
    ],
  },
  {
    name: 'an offset that no worker committed is believed for small requests',
    patches: [
      patch(
        'src/codec/request-position.ts',
        'return answered !== undefined && offset < answered.next ?',
        'return answered !== undefined && offset < 1e15 ?',
      ),
    ],
  },
  {
    name: 'the ledger says that requests are answered which were only read',
    patches: [
      patch(
        'src/worker/request-partition.ts',
        'return position && { ...position, last: this.#lost.last };',
        'return position && { next: this.#lost.readTo, small: this.#lost.readTo };',
      ),
    ],
  },
  {
    name: 'reading continues at the end when its offset is gone',
    firstSeed: 14,
    patches: [patch('src/worker/request-partition.ts', 'return bounds.logStart;', 'return bounds.end;')],
  },
  {
    name: 'aborted requests served',
    patches: [patch('src/kafka/records/decode.ts', "isolation === 'read_committed' ? fetched.aborted : []", '[]')],
  },
  {
    name: 'transaction markers taken for requests',
    patches: [
      patch(
        'src/kafka/records/decode.ts',
        'return isControl || lastOffset < this.#next;',
        'return lastOffset < this.#next;',
      ),
    ],
  },
  {
    name: 'a batch truncated by the fetch is skipped',
    patches: [
      patch(
        'src/kafka/records/decode.ts',
        'return this.#open === undefined && endOfBatch(this.#bytes, this.#at) === undefined;',
        'const isDone = this.#open === undefined && endOfBatch(this.#bytes, this.#at) === undefined;\n    const isCut = isDone && this.#at + AT.records < this.#bytes.length;\n    if (isCut) this.#next = readHead(this.#bytes.subarray(this.#at)).lastOffset + 1;\n    return isDone;',
      ),
    ],
  },
  {
    name: 'records below the fetched offset passed on',
    patches: [
      patch(
        'src/kafka/records/decode.ts',
        'if (record.offset >= this.#next) this.#add(record, body.headers);',
        'this.#add(record, body.headers);',
      ),
    ],
  },
  {
    name: 'a partition assigned to no member',
    scenario: 'take-over',
    patches: [
      patch(
        'src/kafka/loops/planner.ts',
        'owners[partition] === candidate)',
        'owners[partition] === candidate && targets[partition] === candidate)',
      ),
    ],
  },
  {
    name: 'no answer to a reply taken as delivered',
    firstSeed: 12,
    patches: [
      patch(
        'src/adapters/kafka/publisher.ts',
        'if (!isOfRecord(errorCode)) return error;',
        'if (!isOfRecord(errorCode)) {\n        for (const index of indices) deliveries[index] = DELIVERED;\n        return undefined;\n      }',
      ),
    ],
  },
  {
    name: 'a call without a deadline',
    patches: [
      patch(
        'src/kafka/wire/deadlines.ts',
        'timeLimit(this.#runtime, this.#left(deadlineMs), () => end(late()))',
        'timeLimit(this.#runtime, this.#left(deadlineMs), () => void late)',
      ),
    ],
  },
  {
    name: 'ready though no broker answers',
    unit: unitTest(
      'test/worker/readiness.test.ts',
      'a worker that has no partition is not ready either when no broker answers',
    ),
    patches: [
      patch('src/worker/worker.ts', "if (silentMs > KAFKA_SILENCE_MS) return 'KAFKA_UNAVAILABLE';", 'void silentMs;'),
    ],
  },
  {
    name: 'ready though the group is lost',
    patches: [
      patch(
        'src/worker/request-service.ts',
        'return this.#member?.joined ?? false;',
        'return this.#member !== undefined;',
      ),
    ],
  },
  {
    name: 'a partition whose leader is not reached is kept',
    scenario: 'cut-off',
    patches: [patch('src/worker/request-service.ts', 'unreached: this.#reach.unreached', 'unreached: []')],
  },
  {
    name: 'a partition assigned to a member that does not reach its leader',
    scenario: 'cut-off',
    patches: [patch('src/kafka/loops/planner.ts', '!unreached.includes(partition)', 'unreached.length >= 0')],
  },
];

/** Bugs in noticing that a log has lost its tail, and in reading what is new at the offsets that became free. */
export const TAIL_MUTANTS: readonly Mutant[] = [
  {
    name: 'requests at reused offsets dropped as answered',
    unit: unitTest(
      'test/worker/request-tail.test.ts',
      'after the request topic has lost its tail, requests at reused offsets get replies, old ones are not read again, and the loss is logged',
    ),
    patches: [
      patch(
        'src/worker/request-group.ts',
        '    this.#end(partition);\n    this.#serve(partition, { next: from, small: from }, { next: position, small: position });\n',
        '',
      ),
    ],
  },
  {
    name: 'reading continues at the end after a lost request tail',
    unit: unitTest(
      'test/worker/request-tail.test.ts',
      'after the request topic has lost its tail, requests at reused offsets get replies, old ones are not read again, and the loss is logged',
    ),
    patches: [
      patch(
        'src/worker/request-partition.ts',
        'Math.min(answered, end, found === -1 ? end : found)',
        'Math.min(end, found === answered ? end : end)',
      ),
    ],
  },
  {
    name: 'the offset after a lost request tail is not committed',
    unit: unitTest(
      'test/worker/request-tail.test.ts',
      'the offset after a lost tail is committed once the coordinator accepts it, even if nothing can be answered meanwhile',
    ),
    patches: [patch('src/worker/request-group.ts', ', { next: position, small: position });', ');')],
  },
  {
    name: 'the last record that was read is not committed',
    unit: unitTest(
      'test/worker/request-tail.test.ts',
      'a worker that starts after the log was lost and is as long again serves what is new',
    ),
    patches: [
      patch(
        'src/worker/request-partition.ts',
        'encodeMetadata({ ...position, last: this.#lost.last })',
        'encodeMetadata(position)',
      ),
    ],
  },
  {
    name: 'a marker refused at the end of the requests',
    patches: [
      patch(
        'src/ledger/ends.ts',
        'if (known < Math.max(1, requestEnd)) return;',
        'if (known + 1 < Math.max(1, requestEnd)) return;',
      ),
    ],
  },
  {
    name: 'the time of the first sending is ignored',
    firstSeed: 22,
    patches: [
      patch(
        'src/codec/request-headers.ts',
        'return origin?.appendedAtMs ?? firstSentMs;',
        'return origin?.appendedAtMs;',
      ),
    ],
  },
  {
    name: 'each request that is sent again is forgotten',
    patches: [
      patch(
        'src/pipeline/rulings.ts',
        'return sinceMs === 0 || isYounger ? undefined',
        'return sinceMs === 1 && isYounger ? undefined',
      ),
    ],
  },
  {
    name: 'no comparison after reading was interrupted',
    unit: unitTest(
      'test/adapters/kafka/ledger-reading.test.ts',
      'starts again when reading was interrupted, since the log may be another one by then',
    ),
    patches: [
      patch(
        'src/adapters/kafka/ledger-reading.ts',
        'if (!this.#isOver && copy.doubt()) this.restart();',
        'if (this.#isOver && copy.doubt()) this.restart();',
      ),
    ],
  },
];

/** Bugs in what shows the past of a record without an age. */
export const RECORD_MUTANTS: readonly Mutant[] = [
  {
    name: 'a copy of a request gets no entry',
    patches: [
      patch(
        'src/pipeline/rulings.ts',
        'if (decided.entries < MAX_ENTRIES && isCopy(accepted, decided)) return true;',
        '',
      ),
    ],
  },
];
