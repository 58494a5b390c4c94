import { describe, expect, test } from 'vitest';
import {
  type JournaledCommand,
  type JournalSession,
  journaled,
  journalText,
  MAX_ENTRIES,
  readJournal,
  type StoredEntry,
} from '../../../src/cli/journal/journal-run.ts';
import type { JournalEntry } from '../../../src/codec/journal-entry.ts';
import { IdallocError } from '../../../src/errors.ts';
import { journalKeys } from '../../../src/identity/keys.ts';
import { FakeEtcd, type Fault, goodLink, type Link } from '../../identity/fake-etcd.ts';

const NOW = Date.UTC(2027, 0, 31, 8);
const KEYS = journalKeys('/ids', 3);
const COMMAND: JournaledCommand = { command: 'sequence close', arguments: { sequence: 'invoices/2026' } };

class Stage {
  readonly etcd = new FakeEtcd(() => NOW);
  err = '';

  session(link: Link = goodLink): JournalSession {
    const err = (text: string) => {
      this.err += text;
    };
    const context = { who: () => 'alice@host', now: () => NOW, err };
    return { context, etcd: this.etcd.port(link), config: { etcd: { prefix: '/ids' }, datacenterId: 3 } };
  }

  /** What the journal has, without what is random. */
  async entries(): Promise<object[]> {
    const all = await readJournal(this.session());
    return all.map(({ number, entry, fault }) => ({
      number,
      ...(entry === undefined ? { fault } : { outcome: entry.outcome, code: entry.code, note: entry.note }),
    }));
  }
}

/** Gives the n-th call of this name that fault, counted from 0. */
function faulty(name: string, nth: number, fault: Fault): Link {
  let calls = 0;
  return async (called) => ({ fault: called === name && calls++ === nth ? fault : 'pass' });
}

/** Loses every call of this name from the n-th on. */
function deafTo(name: string, from: number): Link {
  let calls = 0;
  return async (called) => ({ fault: called === name && calls++ >= from ? 'request lost' : 'pass' });
}

describe('a command that is entered in the journal', () => {
  test('is there with an unknown outcome while it acts, and with its outcome and its note afterwards', async () => {
    const stage = new Stage();
    const result = await journaled(stage.session(), COMMAND, async (note) => {
      expect(await stage.entries()).toEqual([{ number: 1, outcome: 'unknown', code: '', note: '' }]);
      note('41 numbers');
      return 'result';
    });
    expect(result).toBe('result');
    expect(await stage.entries()).toEqual([{ number: 1, outcome: 'done', code: '', note: '41 numbers' }]);
    const [stored] = await readJournal(stage.session());
    expect(stored?.entry).toMatchObject({ who: 'alice@host', atMs: NOW, ...COMMAND });
  });

  test('is failed with the code of its error', async () => {
    const stage = new Stage();
    const refused = new IdallocError('SEQUENCE_CLOSED', 'it is closed');
    await expect(journaled(stage.session(), COMMAND, () => Promise.reject(refused))).rejects.toBe(refused);
    expect(await stage.entries()).toEqual([{ number: 1, outcome: 'failed', code: 'SEQUENCE_CLOSED', note: '' }]);
  });

  test.for(['ETCD_UNAVAILABLE', 'KAFKA_UNAVAILABLE', 'APPEND_UNANSWERED', 'STOPPING'] as const)(
    'stays unknown after %s, since it may have taken effect',
    async (code) => {
      const stage = new Stage();
      const silent = new IdallocError(code, 'no answer');
      await expect(journaled(stage.session(), COMMAND, () => Promise.reject(silent))).rejects.toBe(silent);
      expect(await stage.entries()).toEqual([{ number: 1, outcome: 'unknown', code, note: '' }]);
    },
  );

  test('stays unknown after any error once it has noted what it does, though it has nothing to say', async () => {
    const stage = new Stage();
    const refused = new IdallocError('TOPIC_INVALID', 'no right to write');
    const halfway = async (note: (text: string) => void) => {
      note('');
      throw refused;
    };
    await expect(journaled(stage.session(), COMMAND, halfway)).rejects.toBe(refused);
    expect(await stage.entries()).toEqual([{ number: 1, outcome: 'unknown', code: 'TOPIC_INVALID', note: '' }]);
  });

  test('that fills its entry succeeds, with as much of its note as there is room for', async () => {
    const stage = new Stage();
    const command = { ...COMMAND, arguments: { ledger: 'l'.repeat(3_700) } };
    const work = async (note: (text: string) => void) => {
      note('ä'.repeat(400));
      return 'result';
    };
    expect(await journaled(stage.session(), command, work)).toBe('result');
    expect([await stage.entries(), stage.err]).toEqual([
      [{ number: 1, outcome: 'done', code: '', note: `${'ä'.repeat(64)}…` }],
      '',
    ]);
  });

  test('is not carried out if its entry can not be written', async () => {
    const stage = new Stage();
    stage.etcd.fill();
    let isDone = false;
    const work = async () => {
      isDone = true;
    };
    await expect(journaled(stage.session(), COMMAND, work)).rejects.toMatchObject({
      code: 'ETCD_REFUSED',
      message: expect.stringMatching(/^the journal of commands could not be written, so nothing was done: /),
    });
    await expect(journaled(stage.session(deafTo('get', 0)), COMMAND, work)).rejects.toMatchObject({
      code: 'ETCD_UNAVAILABLE',
    });
    await expect(journaled(stage.session(deafTo('transact', 0)), COMMAND, work)).rejects.toMatchObject({
      code: 'ETCD_UNAVAILABLE',
    });
    expect(isDone).toBe(false);
  });

  test('succeeds though its outcome can not be written, and says so', async () => {
    const stage = new Stage();
    expect(await journaled(stage.session(deafTo('transact', 1)), COMMAND, async () => 'result')).toBe('result');
    expect(stage.err).toMatch(/^the journal keeps this command with an unknown outcome: ETCD_UNAVAILABLE: .*\n$/);
    expect(await stage.entries()).toEqual([{ number: 1, outcome: 'unknown', code: '', note: '' }]);
  });

  test.for(['request lost', 'answer lost', 'asked twice', 'doubled', 'late'] as const)(
    'has one entry, whichever of its calls is %s',
    async (fault) => {
      for (const nth of [0, 1]) {
        const stage = new Stage();
        await journaled(stage.session(faulty('transact', nth, fault)), COMMAND, async () => undefined);
        while (stage.etcd.lateCount > 0) stage.etcd.deliverLate();
        expect(await stage.entries()).toEqual([{ number: 1, outcome: 'done', code: '', note: '' }]);
      }
    },
  );

  test('has an entry of its own beside an equal command at the same time', async () => {
    const stage = new Stage();
    const one = () => journaled(stage.session(), COMMAND, async () => undefined);
    await Promise.all([one(), one(), one()]);
    expect(await stage.entries()).toMatchObject([{ number: 1 }, { number: 2 }, { number: 3 }]);
  });
});

describe('the journal', () => {
  test('keeps the newest 10,000 entries', async () => {
    const stage = new Stage();
    await journaled(stage.session(), COMMAND, async () => undefined);
    const old = stage.etcd.peek(KEYS.entry(1))?.value;
    for (let number = 1; number <= MAX_ENTRIES + 4; number += 1) stage.etcd.tamper(KEYS.entry(number), old);
    stage.etcd.tamper(KEYS.last, Buffer.from(String(MAX_ENTRIES + 4)));
    await journaled(stage.session(), COMMAND, async () => undefined);
    const numbers = (await readJournal(stage.session())).map(({ number }) => number);
    expect(numbers).toHaveLength(MAX_ENTRIES);
    expect([numbers[0], numbers.at(-1)]).toEqual([6, MAX_ENTRIES + 5]);
  });

  test.for([undefined, Buffer.from('many')])('goes on behind its last entry when its count is %s', async (value) => {
    const stage = new Stage();
    for (let i = 0; i < 3; i += 1) await journaled(stage.session(), COMMAND, async () => undefined);
    stage.etcd.tamper(KEYS.last, value);
    await journaled(stage.session(), COMMAND, async () => undefined);
    expect(await stage.entries()).toMatchObject([1, 2, 3, 4].map((number) => ({ number })));
    expect(stage.etcd.peek(KEYS.last)?.value.toString()).toBe('4');
  });

  test('shows an entry that it can not read, beside the others', async () => {
    const stage = new Stage();
    for (let i = 0; i < 2; i += 1) await journaled(stage.session(), COMMAND, async () => undefined);
    stage.etcd.tamper(KEYS.entry(1), Buffer.from('{"v":2}'));
    expect(await stage.entries()).toEqual([
      { number: 1, fault: expect.stringContaining(KEYS.entry(1)) },
      { number: 2, outcome: 'done', code: '', note: '' },
    ]);
  });
});

const ENTRY: JournalEntry = {
  id: '',
  atMs: Date.UTC(2027, 0, 31, 8),
  who: 'alice@host',
  command: 'sequence restart',
  arguments: { ledger: 'id.ledger', sequence: 'invoices', at: 58 },
  outcome: 'done',
  code: '',
  note: 'left out 55 numbers of invoices: 3 to 57',
};

test('each command has a line with its time, who gave it, its arguments and what came of it', () => {
  const entries: readonly StoredEntry[] = [
    { number: 1, entry: ENTRY, fault: undefined },
    {
      number: 2,
      fault: undefined,
      entry: {
        ...ENTRY,
        ...{ outcome: 'failed', code: 'REBUILD_REFUSED', command: 'namespace rebuild', note: '' },
        arguments: { ledger: ['one', 'two'], bound: null },
      },
    },
    { number: 3, entry: undefined, fault: 'no entry' },
  ];
  expect(journalText(entries)).toBe(
    [
      'entry  time                      who         outcome                  command',
      '    1  2027-01-31T08:00:00.000Z  alice@host  done                     sequence restart: ledger id.ledger, sequence invoices, at 58 (left out 55 numbers of invoices: 3 to 57)',
      '    2  2027-01-31T08:00:00.000Z  alice@host  failed, REBUILD_REFUSED  namespace rebuild: ledger one,two',
      '    3                                        unreadable               no entry',
      '3 entries',
      '',
    ].join('\n'),
  );
});

test('an entry of another program can not control the terminal', () => {
  const entry = { ...ENTRY, who: '\u001b[2J', note: 'a\nb' };
  const text = journalText([{ number: 1, entry, fault: undefined }]);
  expect([text.includes('\u001b'), text.includes('a\nb')]).toEqual([false, false]);
});

test('an empty journal is said to have no entries', () => {
  expect(journalText([])).toBe('0 entries\n');
});
