import { arrow, box, type Drawing, lines, text, thin, WIDTH } from './svg.ts';

/** What etcd remembers when the ledger loses its tail. */
export function loss(): Drawing {
  const columns = [
    { offset: 41, record: ['1, 2, 3', 'for a'], kind: 'good', head: 'next is 4' },
    { offset: 42, record: ['4 for b', 'lost'], kind: 'bad', head: 'next is 5' },
    { offset: 43, record: ['5 for c', 'lost'], kind: 'bad', head: 'next is 6' },
    { offset: 42, record: ['a loss: goes', 'on at 6'], kind: 'main', head: undefined },
    { offset: 43, record: ['6 for d', 'counts'], kind: 'good', head: 'next is 7' },
  ] as const;
  const width = 112;
  const x = (nth: number) => 84 + 124 * nth + (nth > 2 ? 6 : 0);
  const middle = (nth: number) => x(nth) + width / 2;
  const between = (x(2) + width + x(3)) / 2;
  return {
    name: 'loss',
    title: 'What the ledger loses, etcd remembers',
    description:
      'Records of one ledger partition, and above each what etcd has of the sequence, which is written first. The numbers 1 to 3 lie at offset 41, and etcd has 4 as the next number; 4 lies at 42, 5 at 43, and etcd has 6. Then the ledger loses what lies at 42 and 43. The worker finds 6 in etcd and states at offset 42 that the sequence goes on there. The next request gets 6, at offset 43.',
    height: 300,
    parts: [
      text(46, 58, 'etcd', { look: 'strong' }),
      text(46, 158, 'ledger', { look: 'strong' }),
      ...columns.flatMap(({ offset, record, kind, head }, nth) => [
        ...(head === undefined
          ? []
          : [
              box(x(nth), 34, width, 38, [head], 'box', 'small'),
              arrow([
                [middle(nth), 72],
                [middle(nth), 118],
              ]),
            ]),
        box(x(nth), 120, width, 64, record, kind, 'small'),
        text(middle(nth), 203, `lies at ${offset}`, { look: 'small soft' }),
      ]),
      arrow([
        [x(2) + width, 53],
        [middle(3), 53],
        [middle(3), 118],
      ]),
      thin(between, 84, between, 206),
      text(between, 226, 'the ledger ends at 42 again', { look: 'small soft' }),
      lines(
        WIDTH / 2,
        256,
        [
          'Numbers are written to etcd first. So the ledger never shows a number that etcd does not',
          'know, and none is given out twice. If b or c ask again, they get FORGOTTEN.',
        ],
        { look: 'small' },
      ),
    ],
  };
}
