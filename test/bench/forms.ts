import { FORM_NAMES, type FormName } from '../../src/codec/form/form.ts';
import { FORMS, openForm } from '../../src/codec/form/forms.ts';
import { parseFormKeys } from '../../src/codec/form/keys.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { optionsOf } from './options.ts';
import { median } from './stage.ts';

/**
 * The cost of formatting and parsing an ID in each form. Each round measures every form, hex included, so that other
 * load on the machine affects all of them alike; the median of the rounds counts. The ratio to hex holds on other
 * machines too.
 */
const { ms, rounds, json } = optionsOf(
  'bench:forms',
  ['Measures formatting and parsing of an ID in each form, in ns per ID and as a ratio to form hex.'],
  { ms: 100, rounds: 7 },
  { ms: 'time for each form, direction and round', rounds: 'the median of the rounds is printed' },
);

const DEFAULT = presetLayout('default');
const SETTINGS = { layout: DEFAULT, keys: parseFormKeys(`1:${'0123456789abcdef'.repeat(4)}`), prefix: 'ord' };
const FIRST = 117_652_451_833_733_120n;
const SOME = 64;
/** Calls between two readings of the clock; in the slowest form a call takes a tenth of a millisecond. */
const CALLS_PER_READING = 64;

/** Keeps the last result, so that the compiler does not remove the calls. */
let last: unknown;

function nsOf(call: (k: number) => unknown): number {
  const begunMs = performance.now();
  let calls = 0;
  let tookMs = 0;
  while (tookMs < ms) {
    for (let k = 0; k < CALLS_PER_READING; k += 1) last = call(k % SOME);
    calls += CALLS_PER_READING;
    tookMs = performance.now() - begunMs;
  }
  return (tookMs * 1e6) / calls;
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

if (json) {
  process.stdout.write(`${JSON.stringify(rows)}\n`);
} else {
  const cells = [
    ['form', 'format ns', 'x hex', 'parse ns', 'x hex', 'free bits'],
    ...rows.map((row) =>
      [row.form, row.formatNs, row.formatToHex, row.parseNs, row.parseToHex, row.freeBits].map(String),
    ),
  ];
  for (const [name = '', ...numbers] of cells) {
    process.stdout.write(`${name.padEnd(12)}${numbers.map((cell) => cell.padStart(11)).join('')}\n`);
  }
}
