import { parseArgs } from 'node:util';
import type { FormName } from '../../src/codec/form/form.ts';
import { FORM_NAMES, FORMS, openForm } from '../../src/codec/form/forms.ts';
import { parseFormKeys } from '../../src/codec/form/keys.ts';
import { presetLayout } from '../../src/core/presets.ts';

/**
 * What it costs to write and to read an ID in each form. Each round measures every form, hex among them, so that what else the
 * machine does meets all of them; the median of the rounds counts. The ratio to hex is of use on another machine.
 */
const { values } = parseArgs({
  options: {
    ms: { type: 'string', default: '100' },
    rounds: { type: 'string', default: '7' },
    json: { type: 'boolean', default: false },
    help: { type: 'boolean', default: false },
  },
});
if (values.help) {
  process.stdout.write('npm run bench:forms -- [--ms 100: for each form, direction and round] [--rounds 7] [--json]\n');
  process.exit(0);
}
const ms = Number(values.ms);
const rounds = Number(values.rounds);

const DEFAULT = presetLayout('default');
const SETTINGS = { layout: DEFAULT, keys: parseFormKeys(`1:${'0123456789abcdef'.repeat(4)}`), prefix: 'ord' };
const FIRST = 117_652_451_833_733_120n;
const SOME = 64;
/** As many calls between two looks at the clock; the slowest form takes a tenth of a millisecond for each. */
const AT_ONCE = 64;

/** Keeps what was made, so that nothing is optimised away. */
let last: unknown;

function nsOf(call: (k: number) => unknown): number {
  const begunMs = performance.now();
  let calls = 0;
  let tookMs = 0;
  while (tookMs < ms) {
    for (let k = 0; k < AT_ONCE; k += 1) last = call(k % SOME);
    calls += AT_ONCE;
    tookMs = performance.now() - begunMs;
  }
  return (tookMs * 1e6) / calls;
}

function median(numbers: readonly number[]): number {
  return numbers.toSorted((a, b) => a - b)[Math.floor(numbers.length / 2)] ?? Number.NaN;
}

interface Cost {
  readonly form: FormName;
  readonly formatNs: number;
  readonly parseNs: number;
}

function measure(form: FormName): Cost {
  const { format, parse } = openForm(form, SETTINGS);
  const ids = Array.from({ length: SOME }, (_, k) => FIRST + BigInt(k) * 4_194_305n);
  const texts = ids.map(format);
  return {
    form,
    formatNs: nsOf((k) => format(ids[k] ?? 0n)),
    parseNs: nsOf((k) => parse(texts[k] ?? '')),
  };
}

for (const form of FORM_NAMES) measure(form); // warms up
const measured = Array.from({ length: rounds }, () => FORM_NAMES.map(measure));
const costs = FORM_NAMES.map((form) => {
  const own = measured.flat().filter((cost) => cost.form === form);
  return {
    form,
    formatNs: Math.round(median(own.map(({ formatNs }) => formatNs))),
    parseNs: Math.round(median(own.map(({ parseNs }) => parseNs))),
    freeBits: FORMS[form].freeBits(DEFAULT),
  };
});
const hex = costs.find(({ form }) => form === 'hex') ?? { formatNs: Number.NaN, parseNs: Number.NaN };
const rows = costs.map((cost) => ({
  ...cost,
  formatToHex: Math.round((10 * cost.formatNs) / hex.formatNs) / 10,
  parseToHex: Math.round((10 * cost.parseNs) / hex.parseNs) / 10,
}));
if (last === undefined) throw new Error('nothing was measured');

if (values.json) {
  process.stdout.write(`${JSON.stringify(rows)}\n`);
} else {
  const cells = [
    ['form', 'format ns', 'to hex', 'parse ns', 'to hex', 'free bits'],
    ...rows.map((row) =>
      [row.form, row.formatNs, row.formatToHex, row.parseNs, row.parseToHex, row.freeBits].map(String),
    ),
  ];
  for (const [name = '', ...numbers] of cells) {
    process.stdout.write(`${name.padEnd(12)}${numbers.map((cell) => cell.padStart(11)).join('')}\n`);
  }
}
