import { arrow, box, type Drawing, lines, text, WIDTH } from './svg.ts';

/** How numbers without a gap are decided. */
export function sequence(): Drawing {
  const records = [
    { writer: 'worker A', offset: 41, numbers: '1, 2, 3 for a', at: 41 },
    { writer: 'worker B', offset: 42, numbers: '4 for b', at: 42 },
    { writer: 'worker A', offset: 43, numbers: '4 for c', at: 42 },
    { writer: 'worker A, again', offset: 44, numbers: '5 for c', at: 44 },
  ];
  const width = 154;
  const x = (nth: number) => 24 + 173 * nth;
  const middle = (nth: number) => x(nth) + width / 2;
  const between = (middle(1) + middle(2)) / 2;
  return {
    name: 'sequence',
    title: 'A record of numbers counts only where it was written for',
    description:
      'Four records of one ledger partition. Worker A writes the numbers 1 to 3 for offset 41, and they count there. Then A and B, who have both read all before 42, write number 4 for offset 42. The record of B lies there and counts. That of A comes to lie at 43 and is void. A reads on, and writes number 5 for offset 44, which counts.',
    height: 330,
    parts: [
      text(between, 30, 'both have read all before 42, and write 4', { look: 'small strong' }),
      ...[1, 2].map((nth) =>
        arrow([
          [between + (nth === 1 ? -40 : 40), 38],
          [middle(nth), 60],
        ]),
      ),
      ...records.flatMap(({ writer, offset, numbers, at }, nth) => [
        box(x(nth), 62, width, 36, [writer], 'box', 'small'),
        arrow([
          [middle(nth), 98],
          [middle(nth), 134],
        ]),
        text(middle(nth) + 8, 121, `for offset ${at}`, { at: 'start', look: 'small' }),
        box(x(nth), 136, width, 62, [numbers, at === offset ? 'counts' : 'void'], at === offset ? 'good' : 'bad'),
        text(middle(nth), 217, `lies at ${offset}`, { look: 'small soft' }),
      ]),
      arrow([
        [middle(2), 226],
        [middle(2), 246],
        [middle(3), 246],
        [middle(3), 226],
      ]),
      text((middle(2) + middle(3)) / 2, 264, 'reads on, tries again', { look: 'small soft' }),
      lines(
        WIDTH / 2,
        292,
        [
          'Whoever wrote a record that counts has read everything before it: no number is',
          'given out twice, and none is left out.',
        ],
        { look: 'small' },
      ),
    ],
  };
}
