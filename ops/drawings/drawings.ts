import { loss } from './loss.ts';
import { recording } from './recording.ts';
import { sequence } from './sequence.ts';
import { arrow, box, type Drawing, lines, rect, text, thin, WIDTH } from './svg.ts';

const SMALL = { look: 'small soft' } as const;

function architecture(): Drawing {
  const topics = [
    ['id.requests', 'box'],
    ['id.replies.*', 'box'],
    ['id.ledger', 'main'],
    ['id.witness', 'box'],
    ['id.requests.dlt', 'box'],
  ] as const;
  const y = (nth: number) => 62 + 54 * nth;
  return {
    name: 'architecture',
    title: 'Architecture',
    description:
      'A service sends requests to a Kafka topic. A worker reads them, appends each decision to the ledger, and sends replies, or dead letters. It has an index on local disk. It writes each reservation to a witness topic, and leases its worker ID and ceiling in etcd, which also has how far the ledger has gone.',
    height: 440,
    parts: [
      box(20, 76, 130, 62, ['your service'], 'box', 'strong'),
      rect(250, 20, 170, 322, 'area'),
      text(335, 44, 'Kafka', { look: 'strong' }),
      ...topics.map(([name, kind], nth) => box(265, y(nth), 140, 38, [name], kind, 'mono')),
      rect(548, 14, 160, 322),
      rect(542, 20, 160, 322),
      text(622, 44, 'workers', { look: 'strong' }),
      box(554, 62, 136, 56, ['gate and', 'clock guard'], 'box', 'small'),
      box(554, 134, 136, 56, ['generator:', 'reservation'], 'box', 'small'),
      box(554, 206, 136, 92, ['index on disk:', 'where each', 'decision lies'], 'box', 'small'),
      arrow([
        [150, 92],
        [200, 92],
        [200, y(0) + 19],
        [265, y(0) + 19],
      ]),
      text(196, 74, 'request', SMALL),
      arrow([
        [265, y(1) + 19],
        [200, y(1) + 19],
        [200, 122],
        [150, 122],
      ]),
      text(196, 158, 'IDs', SMALL),
      arrow([
        [405, y(0) + 19],
        [542, y(0) + 19],
      ]),
      text(480, y(0) + 12, 'read', SMALL),
      arrow([
        [542, y(1) + 19],
        [405, y(1) + 19],
      ]),
      text(480, y(1) + 12, 'reply', SMALL),
      arrow(
        [
          [542, y(2) + 19],
          [405, y(2) + 19],
        ],
        'both',
      ),
      text(480, y(2) + 12, 'first entry wins', SMALL),
      arrow([
        [542, y(3) + 19],
        [405, y(3) + 19],
      ]),
      text(480, y(3) + 12, 'reservation', SMALL),
      arrow([
        [542, y(4) + 19],
        [405, y(4) + 19],
      ]),
      text(480, y(4) + 12, 'bad requests', SMALL),
      box(542, 384, 160, 40, ['etcd'], 'main', 'strong'),
      arrow(
        [
          [622, 342],
          [622, 384],
        ],
        'both',
      ),
      lines(530, 392, ['worker ID, and the ceiling up to which it is', 'used; how far the ledger has gone'], {
        at: 'end',
        look: 'small soft',
      }),
    ],
  };
}

function request(): Drawing {
  const at = { requester: 64, requests: 190, worker: 360, ledger: 530, replies: 650 };
  const heads = [
    [at.requester, 'requester', 'strong'],
    [at.requests, 'id.requests', 'mono'],
    [at.worker, 'worker', 'strong'],
    [at.ledger, 'id.ledger', 'mono'],
    [at.replies, 'id.replies.*', 'mono'],
  ] as const;
  const step = (y: number, from: number, to: number, label: string) => [
    arrow([
      [from, y],
      [to, y],
    ]),
    text((from + to) / 2, y - 8, label, { look: 'small' }),
  ];
  const does = (y: number, content: readonly string[]) =>
    box(at.worker - 84, y, 168, 18 * content.length + 14, content, 'main', 'small');
  return {
    name: 'request',
    title: 'One request',
    description:
      'The requester sends a request, the worker reads it and looks into its index. If nothing is decided, it allocates IDs, appends an entry to the ledger and gets its offset. If the entry is the first of its key, it sends the reply, then commits the offset.',
    height: 560,
    parts: [
      ...heads.map(([x, name, look]) => box(x - 56, 16, 112, 36, [name], 'box', look)),
      ...heads.map(([x]) => thin(x, 52, x, 544)),
      ...step(90, at.requester, at.requests, '1 request'),
      ...step(122, at.requests, at.worker, '2 read'),
      does(138, ['3 index: decided?', 'no (yes: go on at 7)']),
      does(206, ['4 allocate IDs of', 'the reservation']),
      ...step(286, at.worker, at.ledger, '5 append an entry'),
      ...step(322, at.ledger, at.worker, '6 its offset'),
      does(340, ['7 the first entry of', 'this key decides']),
      ...step(424, at.worker, at.replies, '8 reply: the batch of the first entry'),
      ...step(464, at.worker, at.requests, '9 commit the offset'),
      ...step(516, at.replies, at.requester, '10 IDs'),
    ],
  };
}

function reservations(): Drawing {
  return {
    name: 'reservations',
    title: 'Reservations of one worker ID on a time line',
    description:
      'Worker A uses part of its reservation and is paused. Worker B, which holds the same worker ID later, starts at the ceiling of A. When A wakes up, it can use only the rest of its own reservation.',
    height: 300,
    parts: [
      text(24, 34, 'worker ID 7', { at: 'start', look: 'strong' }),
      box(24, 84, 150, 60, ['used by A'], 'good'),
      box(174, 84, 176, 60, ['reserved by A,', 'perhaps never used'], 'box', 'small'),
      box(350, 84, 130, 60, ['used by B'], 'good'),
      box(480, 84, 166, 60, ['reserved by B'], 'box', 'small'),
      text(174, 66, 'A is paused', { look: 'small' }),
      arrow([
        [174, 72],
        [174, 84],
      ]),
      arrow([
        [24, 164],
        [700, 164],
      ]),
      text(24, 184, 'time in IDs', { at: 'start', look: 'small soft' }),
      arrow([
        [350, 206],
        [350, 148],
      ]),
      lines(350, 224, ['ceiling that A raised:', 'B starts here'], { look: 'small' }),
      arrow([
        [646, 206],
        [646, 148],
      ]),
      lines(640, 224, ['ceiling that', 'B raised'], { look: 'small' }),
      lines(24, 262, ['A wakes up after an hour: at worst', 'it uses the rest of its own reservation.'], {
        at: 'start',
        look: 'small soft',
      }),
    ],
  };
}

function gate(): Drawing {
  return {
    name: 'gate',
    title: 'States of a worker, and its gate',
    description:
      'A worker starts without a worker ID, acquires a free one, and holds it. Only then is the gate open. When etcd is silent, the process was paused or the reservation is used up, it is suspended, and resumes if etcd confirms that nobody was in between. Otherwise it is lost, and acquires a new one.',
    height: 372,
    parts: [
      arrow([
        [14, 100],
        [62, 100],
      ]),
      text(36, 88, 'start', SMALL),
      box(62, 72, 110, 56, ['none']),
      arrow([
        [172, 100],
        [282, 100],
      ]),
      lines(227, 70, ['a worker ID', 'is free'], SMALL),
      box(282, 72, 124, 56, ['acquiring']),
      arrow([
        [406, 100],
        [536, 100],
      ]),
      lines(471, 52, ['lease, owner key', 'and reservation', 'are confirmed'], SMALL),
      box(536, 72, 140, 56, ['held'], 'good', 'strong'),
      text(606, 56, 'gate open: allocates', { look: 'small' }),
      arrow([
        [580, 128],
        [580, 236],
      ]),
      lines(570, 166, ['etcd is silent, process was', 'paused, or reservation', 'is used up'], {
        at: 'end',
        look: 'small soft',
      }),
      arrow([
        [634, 236],
        [634, 128],
      ]),
      lines(644, 158, ['nobody', 'was in', 'between'], { at: 'start', look: 'small soft' }),
      box(536, 236, 140, 56, ['suspended'], 'bad'),
      arrow([
        [536, 264],
        [172, 264],
      ]),
      text(354, 252, 'someone was in between, or could have been', SMALL),
      text(354, 284, '(also straight from held)', SMALL),
      box(62, 236, 110, 56, ['lost'], 'bad'),
      arrow([
        [117, 236],
        [117, 128],
      ]),
      lines(
        WIDTH / 2,
        326,
        [
          'A stop, or a clock that can’t be trusted, releases the worker ID: from any state back to none.',
          'While the gate is closed, requests wait in Kafka.',
        ],
        { look: 'small' },
      ),
    ],
  };
}

function takeOver(): Drawing {
  const at = { killed: 190, moved: 370, freed: 610 };
  const lane = (y: number, name: readonly string[]) =>
    lines(20, y + 24 - 9 * (name.length - 1), name, { at: 'start', look: 'small' });
  return {
    name: 'take-over',
    title: 'A worker is killed, and another one takes over',
    description:
      'Worker A serves a partition and worker B stands by. A is killed. After the session of 10 seconds the partition moves to B, whose copy of the index is complete, so it serves at once. After the lease of 30 seconds the worker ID of A is free; its next holder starts at the ceiling of A.',
    height: 372,
    parts: [
      ...[at.killed, at.moved, at.freed].map((x) => thin(x, 56, x, 304)),
      lines(at.killed, 26, ['A is killed', '0 s'], { look: 'small strong' }),
      lines(at.moved, 26, ['its session ends', '10 s'], { look: 'small strong' }),
      lines(at.freed, 26, ['its lease ends', '30 s'], { look: 'small strong' }),
      lane(72, ['requests']),
      box(100, 72, at.killed - 100, 38, ['replies of A'], 'good', 'small'),
      box(at.killed, 72, at.moved - at.killed, 38, ['wait in Kafka'], 'box', 'small'),
      box(at.moved, 72, 690 - at.moved, 38, ['replies of B'], 'good', 'small'),
      lane(132, ['worker A']),
      box(100, 132, at.killed - 100, 38, ['owner'], 'main', 'small'),
      lane(192, ['worker B']),
      box(100, 192, at.moved - 100, 38, ['standby: its index follows the ledger'], 'box', 'small'),
      box(at.moved, 192, 690 - at.moved, 38, ['owner, with a worker ID of its own'], 'main', 'small'),
      lane(252, ['worker ID', 'of A']),
      box(100, 252, at.freed - 100, 38, ['leased: nobody else can acquire it'], 'box', 'small'),
      box(at.freed, 252, 690 - at.freed, 38, ['free'], 'good', 'small'),
      lines(
        WIDTH / 2,
        330,
        [
          'B reads the requests that A had not committed again, and sends what the ledger holds.',
          'The next holder of A’s worker ID starts at the ceiling that A raised.',
        ],
        { look: 'small' },
      ),
    ],
  };
}

export const DRAWINGS: readonly Drawing[] = [
  architecture(),
  request(),
  reservations(),
  gate(),
  takeOver(),
  sequence(),
  loss(),
  recording(),
];
