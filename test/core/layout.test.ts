import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  compose,
  decompose,
  defineLayout,
  fieldsText,
  formatHex,
  type Layout,
  type LayoutSpec,
  layoutText,
  parseFields,
  parseLayoutText,
  tickStartMs,
  toTicks,
} from '../../src/core/layout.ts';
import { customLayout, customText, findLayout, layoutFinder } from '../../src/core/layout-choice.ts';
import { presetLayout } from '../../src/core/presets.ts';
import { ticks, wallMs } from '../../src/core/units.ts';
import { anyLayout, partsOf, presetLayouts } from './arbitraries.ts';

const END = 2n ** 63n;
const layout = presetLayout('default');
const parts = { ticks: toTicks(layout, wallMs(1_780_416_300_000)), datacenter: 4, worker: 18, sequence: 0 };

const valid: LayoutSpec = {
  name: 'valid',
  fields: [
    { role: 'timestamp', bits: 41, label: 'timestamp' },
    { role: 'worker', bits: 10, label: 'worker' },
    { role: 'sequence', bits: 12, label: 'sequence' },
  ],
  tickMs: 1,
  epochMs: 0,
  sequenceStartBelow: 1,
};

describe('an ID', () => {
  it('is the golden vector for its instant, datacenter 4, worker 18', () => {
    expect(compose(layout, parts)).toBe(55_325_805_773_398_016n);
    expect(formatHex(compose(layout, parts))).toBe('00c48e86f8092000');
    expect(decompose(layout, 55_325_805_773_398_016n)).toEqual(parts);
  });

  it('decodes to the parts it was composed of, in every layout', () => {
    const anyCase = anyLayout.chain((of) => fc.tuple(fc.constant(of), partsOf(of)));
    fc.assert(
      fc.property(anyCase, ([of, its]) => {
        expect(decompose(of, compose(of, its))).toEqual(its);
      }),
    );
  });

  it('rises with its tick, whatever the other fields hold', () => {
    const twoOfOne = anyLayout.chain((of) => fc.tuple(fc.constant(of), partsOf(of), partsOf(of)));
    fc.assert(
      fc.property(twoOfOne, ([of, one, other]) => {
        fc.pre(one.ticks !== other.ticks);
        expect(compose(of, one) < compose(of, other)).toBe(one.ticks < other.ticks);
      }),
    );
  });

  it('changes in one field only when one field changes', () => {
    const roles = ['ticks', 'datacenter', 'worker', 'sequence'] as const;
    const changed = anyLayout.chain((of) =>
      fc.tuple(fc.constant(of), partsOf(of), partsOf(of), fc.constantFrom(...roles)),
    );
    fc.assert(
      fc.property(changed, ([of, before, other, role]) => {
        const after = { ...before, [role]: other[role] };
        const { bits, shift } = of.positions[role === 'ticks' ? 'timestamp' : role];
        const mask = ((1n << BigInt(bits)) - 1n) << BigInt(shift);
        expect((compose(of, before) ^ compose(of, after)) & ~mask).toBe(0n);
        expect((compose(of, after) & mask) >> BigInt(shift)).toBe(BigInt(other[role]));
      }),
    );
  });

  it('is rejected when a part does not fit', () => {
    for (const wrong of [
      { ticks: layout.endTicks },
      { ticks: ticks(-1) },
      { datacenter: 32 },
      { worker: 32 },
      { worker: -1 },
      { worker: 1.5 },
      { sequence: 4096 },
      { sequence: Number.NaN },
    ]) {
      expect(() => compose(layout, { ...parts, ...wrong })).toThrow(RangeError);
    }
  });

  it('stays below 2^63 at the last tick of every preset, but not at the next', () => {
    for (const of of presetLayouts) {
      const last = compose(of, {
        ticks: ticks(of.endTicks - 1),
        datacenter: of.maxDatacenter,
        worker: of.maxWorker,
        sequence: of.sequencesPerTick - 1,
      });
      const bits = of.fields.reduce((sum, field) => sum + field.bits, 0);
      expect(last).toBe(bits < 63 ? 2n ** BigInt(bits) - 1n : END - 1n);
      expect(() => decompose(of, last + 1n)).toThrow(RangeError);
    }
  });

  it('is not decoded from a negative number', () => {
    expect(() => decompose(layout, -1n)).toThrow(RangeError);
  });

  it('is formatted as 16 lowercase hex digits', () => {
    expect(formatHex(0n)).toBe('0000000000000000');
    expect(formatHex(2n ** 64n - 1n)).toBe('ffffffffffffffff');
    expect(() => formatHex(2n ** 64n)).toThrow(RangeError);
    expect(() => formatHex(-1n)).toThrow(RangeError);
  });
});

describe('a tick', () => {
  it('contains its own first and last millisecond', () => {
    const cases = anyLayout.chain((of) => fc.tuple(fc.constant(of), partsOf(of)));
    fc.assert(
      fc.property(cases, ([of, { ticks: at }]) => {
        const startMs = tickStartMs(of, at);
        expect(toTicks(of, startMs)).toBe(at);
        expect(toTicks(of, wallMs(startMs + of.tickMs - 1))).toBe(at);
        expect(toTicks(of, wallMs(startMs - 1))).toBe(at - 1);
      }),
    );
  });

  it('is negative before the epoch', () => {
    expect(toTicks(layout, wallMs(layout.epochMs - 1))).toBe(-1);
  });
});

describe('a layout', () => {
  it('reports all its problems in one error', () => {
    const broken: LayoutSpec = {
      name: 'Broken!',
      fields: [
        { role: 'sequence', bits: 0, label: 'sequence' },
        { role: 'timestamp', bits: 50, label: 'two words' },
        { role: 'datacenter', bits: 20, label: 'datacenter' },
        { role: 'datacenter', bits: 20, label: 'datacenter' },
      ],
      tickMs: 0.5,
      epochMs: -1,
      sequenceStartBelow: 0,
    };
    const message = messageOf(() => defineLayout(broken));
    for (const fault of [
      "name 'Broken!'",
      "gives 'sequence' 0 bits",
      "gives 'two words' 50 bits",
      "label 'two words'",
      '0 worker fields',
      '2 datacenter fields',
      'must begin with the timestamp',
      '90 bits',
      'tickMs is 0.5',
      'epochMs is -1',
      'sequenceStartBelow is 0',
    ]) {
      expect(message).toContain(fault);
    }
  });

  it('fits into a JavaScript number exactly when its last ID does: up to 53 bits', () => {
    const lastOf = (of: Layout): bigint => {
      const end = { ticks: ticks(of.endTicks - 1), datacenter: of.maxDatacenter, worker: of.maxWorker };
      return compose(of, { ...end, sequence: of.sequencesPerTick - 1 });
    };
    const custom = (bits: number) => customLayout({ fields: `timestamp:41,worker:5,sequence:${bits}`, epochMs: 0 });
    const fits = [7, 8].map((bits) => custom(bits).fitsNumber);
    expect(fits).toEqual([true, false]);
    fc.assert(
      fc.property(anyLayout, (of) => {
        expect(of.fitsNumber).toBe(lastOf(of) <= BigInt(Number.MAX_SAFE_INTEGER));
      }),
    );
  });

  it('has at most 64 bits', () => {
    const withWorker = (bits: number): LayoutSpec => ({
      ...valid,
      fields: valid.fields.map((field) => (field.role === 'worker' ? { ...field, bits } : field)),
    });
    expect(defineLayout(withWorker(10)).signBit).toBe(true);
    expect(defineLayout(withWorker(11)).signBit).toBe(false);
    expect(messageOf(() => defineLayout(withWorker(12)))).toContain('65 bits');
  });

  it('must end before the last valid Date', () => {
    const slow = { ...valid, tickMs: 1000, fields: valid.fields.map((f) => ({ ...f, bits: f.bits === 41 ? 44 : 9 })) };
    expect(messageOf(() => defineLayout(slow))).toContain('lasts past');
  });

  it('must not start a tick past its last sequence number', () => {
    expect(defineLayout({ ...valid, sequenceStartBelow: 4096 }).maxCount).toBe(1000);
    expect(messageOf(() => defineLayout({ ...valid, sequenceStartBelow: 4097 }))).toContain('sequenceStartBelow');
  });

  it('is deeply frozen', () => {
    const layout = defineLayout(valid);
    expect(
      [layout, layout.fields, layout.fields[0], layout.positions, layout.positions.worker].every(Object.isFrozen),
    ).toBe(true);
  });

  it('has a fingerprint of everything but its name', () => {
    const { fingerprint } = defineLayout(valid);
    expect(defineLayout({ ...valid, name: 'renamed' }).fingerprint).toBe(fingerprint);
    const [timestamp, worker, sequence] = valid.fields as [never, LayoutSpec['fields'][0], LayoutSpec['fields'][0]];
    const others: LayoutSpec[] = [
      { ...valid, tickMs: 2 },
      { ...valid, epochMs: 1 },
      { ...valid, sequenceStartBelow: 2 },
      { ...valid, fields: [timestamp, sequence, worker] },
      { ...valid, fields: [timestamp, { ...worker, bits: 9 }, sequence] },
      { ...valid, fields: [timestamp, { ...worker, label: 'machine' }, sequence] },
    ];
    const all = [fingerprint, ...others.map((spec) => defineLayout(spec).fingerprint)];
    expect(new Set(all).size).toBe(all.length);
  });

  it('keeps its fingerprint from release to release, because namespaces store it', () => {
    expect(layout.fingerprint).toBe('b064fde81e47ac7b');
  });
});

function messageOf(act: () => unknown): string {
  try {
    act();
  } catch (error) {
    expect(error).toMatchObject({ code: 'CONFIG_INVALID' });
    return (error as Error).message;
  }
  throw new Error('nothing was thrown');
}

const referenceOf = ({ epochMs, fingerprint }: Layout) => ({ epochMs, layoutFingerprint: fingerprint });
const custom = customLayout({ fields: 'timestamp:42,sequence:9,worker:12:shard', epochMs: 1_700_000_000_000 });

describe('the text of fields', () => {
  it('parses back to its fields, in every layout', () => {
    fc.assert(
      fc.property(anyLayout, ({ fields }) => {
        expect(parseFields(fieldsText(fields))).toEqual(fields);
      }),
    );
  });

  it('has a label only where it differs from the role, and allows spaces around commas', () => {
    expect(fieldsText(custom.fields)).toBe('timestamp:42,sequence:9,worker:12:shard');
    expect(parseFields('timestamp:42 , worker:12:worker')).toEqual([
      { role: 'timestamp', bits: 42, label: 'timestamp' },
      { role: 'worker', bits: 12, label: 'worker' },
    ]);
  });

  it.each([
    '',
    'timestamp',
    'timestamp:',
    'timestamp:4x',
    'timestamp:041',
    'time:41',
    'worker:1:A',
    'worker:1:a:b',
    ',',
  ])("that is '%s' is refused, with the grammar in the message", (text) => {
    expect(() => parseFields(text)).toThrow(/role:bits or role:bits:label/);
  });

  it('has at most four fields', () => {
    expect(() => parseFields('worker:1,worker:1,worker:1,worker:1,worker:1')).toThrow(/has 5 fields/);
  });
});

describe('a layout that is described by a text', () => {
  it('is found by fingerprint and text, in every layout', () => {
    fc.assert(
      fc.property(anyLayout, (layout) => {
        const text = customText(layout);
        expect(findLayout(referenceOf(layout), text)).toMatchObject({
          fields: layout.fields,
          positions: layout.positions,
        });
        expect(parseLayoutText(layoutText(layout))).toMatchObject({ tickMs: layout.tickMs, epochMs: layout.epochMs });
      }),
    );
  });

  it('needs no text for a preset, whatever its name and epoch', () => {
    for (const preset of presetLayouts) {
      const { epochMs } = preset;
      expect([customText(preset), findLayout(referenceOf(preset))?.fields]).toEqual([undefined, preset.fields]);
      expect(customText(customLayout({ ...preset, fields: fieldsText(preset.fields), epochMs: epochMs + 1 }))).toBe(
        undefined,
      );
    }
  });

  it('is unknown without its text, and with the text of another layout', () => {
    const other = customLayout({ fields: 'timestamp:42,sequence:9,worker:12:host', epochMs: custom.epochMs });
    const wrong = [undefined, '', layoutText(other), `${layoutText(custom)} `, layoutText({ ...custom, tickMs: 2 })];
    for (const text of wrong) expect(findLayout(referenceOf(custom), text)).toBeUndefined();
    expect(findLayout({ ...referenceOf(custom), epochMs: custom.epochMs + 1 }, layoutText(custom))).toBeUndefined();
    expect(findLayout(referenceOf(custom), layoutText(custom))?.fingerprint).toBe(custom.fingerprint);
  });

  it('is found by a caching reader that saw it without a text before', () => {
    const find = layoutFinder();
    expect(find(referenceOf(custom))).toBeUndefined();
    expect(find(referenceOf(custom), layoutText(custom))?.fingerprint).toBe(custom.fingerprint);
    expect(find(referenceOf(custom))).toBeUndefined();
  });

  it('has exactly one spelling: any other has another fingerprint', () => {
    for (const text of [
      '',
      'x',
      layoutText(custom).replace(':shard', ''),
      layoutText(custom).replace('tick_ms=1', 'tick_ms=01'),
    ]) {
      expect(() => parseLayoutText(text)).toThrow(RangeError);
    }
  });
});
