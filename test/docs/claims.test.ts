import { describe, expect, test } from 'vitest';
import { readPage } from '../support/docs.ts';

/** A strong sentence of a page, word for word, and a test that fails when it is no longer true. */
type Claim = readonly [sentence: string, file: string, title: string];

const README: readonly Claim[] = [
  [
    'No two requests get the same ID, whatever clocks, pauses, crashes and networks do.',
    'identity/history',
    'of seed %i keeps reservations apart, in order, and below ceilings that only rise',
  ],
  [
    'While the ledger keeps it, 26 hours by default, the same correlation ID gets the same batch, byte for byte.',
    'pipeline/decide',
    'gives the same bytes from another worker that never saw the request before',
  ],
  [
    "an ID from the client's buffer is [a minute old at most](docs/reference/limits.md#ids), unless you allow more.",
    'client/refill',
    'is at most a minute by default, and an idle buffer is renewed before it is too old',
  ],
  [
    'No number is given out twice, though one of them loses its data',
    'integration/million-numbers',
    'each to one document, none skipped but those that the ledger states as lost',
  ],
  [
    'A worker whose clock, lease or ledger is in doubt stops allocating and names the reason; requests wait in Kafka.',
    'worker/allocator',
    'comes from the authority, with its code',
  ],
];

const CONCEPTS: readonly Claim[] = [
  [
    'Both see at step 6 which entry is first, and both send that batch.',
    'pipeline/decide',
    'an entry that landed between look-up and append wins, and ours becomes a gap',
  ],
  [
    'if it is lost, it is restored from the ledger.',
    'adapters/index/power-failure',
    'that fails replaces the index, which is restored, since nobody knows what the disk holds',
  ],
  [
    'A worker that reads a request in another partition **forwards** it',
    'pipeline/answers',
    'are each forwarded to the partition that decides them',
  ],
  [
    "it keeps a copy of the partition's index up to date, and takes over without a restore.",
    'kafka/loops/planner',
    'never makes a partition wait for a restore while a member has a complete copy, as members come and go',
  ],
  [
    'Anywhere else it is **void**, and its requests get later numbers.',
    'model/sequence/sequence',
    'numbers are gapless, a key has one decision, and a row says what the log says, with',
  ],
  [
    'Numbers need neither clock nor worker ID.',
    'worker/large-waiting',
    'requests for numbers are counted while etcd is silent, beside which IDs are served, and answered when it is not',
  ],
  [
    'So a number that was given out is never given out again.',
    'model/heads/heads',
    'numbers are given once and none is skipped, and one owner alone answers everything, with',
  ],
  [
    'Where a ledger is behind its head, the worker states a **loss** in it, for all to read, and goes on.',
    'ledger/ends',
    'states the loss of entries that its worker never saw, and every worker refuses what they may have decided',
  ],
  [
    'So workers with different worker IDs never allocate the same ID',
    'core/layout',
    'changes in one field only when one field changes',
  ],
  [
    'If that succeeds, the span between the two is its **reservation**, and it allocates only inside it.',
    'core/generator-properties',
    'uses no tick outside the reservation',
  ],
  [
    'If A wakes up after an hour, it can only use the rest of its own reservation.',
    'integration/etcd-lost',
    'a worker is frozen for longer than its lease and another takes its worker ID: both publish, and all IDs differ',
  ],
  [
    'Writes to etcd compare it, so a write of an earlier term fails.',
    'identity/rebuild',
    'rejects a stale raise even if etcd repeats its revisions',
  ],
  [
    'So every reservation is also written to a Kafka topic, as a **witness**, before it is used.',
    'identity/acquire',
    'a reservation is not used before its witness is acknowledged',
  ],
  [
    'The deadline counts from the moment just before the worker sent its last successful heartbeat',
    'identity/heartbeat',
    'counts from before the keep-alive was sent, not from its answer',
  ],
];

const LIMITS: readonly Claim[] = [
  ['IDs of one worker rise.', 'core/generator-properties', 'allocates strictly rising IDs, so that none repeats'],
  [
    'a request that is older than what the ledger still has gets `FORGOTTEN`, never a second batch',
    'pipeline/retention',
    'never allocates a second batch for a request that it decided: FORGOTTEN',
  ],
  [
    "in the workers' group do not skip requests: workers read from what the ledger shows as answered.",
    'worker/foreign-offsets',
    'an offset that was moved past waiting requests is not believed: they are answered, and the offset is set right',
  ],
  [
    'they get nothing new: what would be decided gets `ANSWERED_BEFORE`.',
    'pipeline/answered-before',
    'gets nothing new in a replay',
  ],
  ['Then an operator has to [create the sequence above it]', 'model/heads/mutants', 'both lose the same decision'],
  [
    'Known ones get their numbers, and IDs go on.',
    'worker/large-waiting',
    'requests for numbers are counted while etcd is silent, beside which IDs are served, and answered when it is not',
  ],
  [
    'a reservation is used only when its witness is acknowledged.',
    'identity/witness',
    'without Kafka keeps lease and deadline, but not the reservation',
  ],
  [
    'is never followed by itself: workers wait until an operator has',
    'integration/two-memories',
    'an empty new cluster is not served until it is adopted; then numbers go on, and what was asked before is FORGOTTEN',
  ],
  [
    'an etcd that was rolled back stops the workers until the namespace is',
    'identity/witness',
    'is refused, and does not end the worker, when etcd is empty but was used',
  ],
  ['**Kafka 2.3** is the oldest broker that works.', 'kafka/wire/dialer', 'when a broker is too old'],
];

const SECURITY: readonly Claim[] = [
  [
    'No input stops a worker, blocks a partition permanently or causes duplicate IDs.',
    'pipeline/intake',
    'never throws, and never accepts an address that is not allowed',
  ],
  [
    'Over Kafka** small requests overtake large ones',
    'worker/large-requests',
    'more large requests than fit into memory are answered once each, and small ones do not wait for them',
  ],
  [
    'refused as `OVERLOADED` to the caller that has more than its share.',
    'http/issuer',
    'has room for one request of every caller, however many IDs another one has',
  ],
  [
    'At its limit of connections a listener closes the slowest, of the caller that has most',
    'http/connections',
    'with more connections than all others loses its own at the limit, not theirs',
  ],
  ['Request bodies are never unpacked.', 'http/api', 'does not unpack a compressed body'],
  [
    "a page in a browser can't reach them by DNS rebinding.",
    'http/local-host',
    'a page that was led to the API gets no ID, unless it has a token',
  ],
  [
    'every npm package that is shipped is verified by its checksum in `package-lock.json`.',
    'ops/lockfile',
    'every package that is shipped has a checksum in the lockfile',
  ],
  [
    'is printed without characters that control a terminal, reverse text or have zero width',
    'cli/output',
    'is printed without its effect, from any source',
  ],
];

const FAULTS: readonly Claim[] = [
  ['Resumes the same term', 'identity/runner', 'an outage of etcd suspends after 15 s, and the same identity resumes'],
  [
    'stops, then leaves the group, so that others serve its partitions.',
    'integration/etcd-lost',
    'a worker that is cut off leaves the group, the other one serves its partitions, and it returns when healed',
  ],
  [
    'two of three members frozen (short) | all workers stop.',
    'integration/etcd-members',
    'with two of three etcd members frozen all workers stop, requests wait, and everything resumes by itself',
  ],
  [
    'allocates nothing, though its reservation has unused ticks',
    'identity/heartbeat',
    'refuses authority after it even if no timer fired',
  ],
  [
    'One wrong broker has no effect',
    'core/clock-guard',
    'is judged by the median broker: one that is off, or one of two, does not eject',
  ],
  [
    'is suspended, not ejected: `PROCESS_PAUSED`, until a heartbeat sent after the pause confirms its worker ID',
    'identity/heartbeat',
    'does not resume by a heartbeat sent before the pause',
  ],
  [
    'Partitions that no member reaches stay where they are',
    'worker/reach',
    'partitions that no worker reaches stay where they are, the group is left alone, and all are served at the end',
  ],
  [
    'its index is as it was at the last sync, which each round of saves ends with',
    'worker/saving',
    'a worker syncs its index once in each round of saves, after the last of them',
  ],
  [
    'the request waits | reply 3.7 to 10 s after the leader starts',
    'integration/leaderless',
    'a known request waits while the ledger partition of its entry has no leader, and then gets its batch',
  ],
];

const CLAIMS: Readonly<Record<string, readonly Claim[]>> = {
  'README.md': README,
  'docs/concepts.md': CONCEPTS,
  'docs/reference/limits.md': LIMITS,
  'docs/security.md': SECURITY,
  'docs/internals/faults.md': FAULTS,
};

const oneLine = (text: string) => text.replaceAll(/\s+/g, ' ');

describe.each(Object.entries(CLAIMS))('%s', (page, claims) => {
  const text = oneLine(readPage(page));

  test.for(claims)('says "%s", which %s shows', ([sentence, file, title]) => {
    expect(text).toContain(sentence);
    const suffix = file === 'model/heads/mutants' ? '.ts' : '.test.ts';
    expect(readPage(`test/${file}${suffix}`).replaceAll("\\'", "'")).toContain(title);
  });
});
