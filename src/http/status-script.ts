import type { DecodedStatus, GateChange, Status } from './status.ts';

/** What the script uses of a browser's elements. */
interface PageElement {
  textContent: string | null;
  className: string;
  value: string;
  append(...children: (PageElement | string)[]): void;
  replaceChildren(...children: PageElement[]): void;
  setAttribute(name: string, value: string): void;
  addEventListener(event: string, listener: (event: { preventDefault(): void }) => void): void;
}

interface PageDocument {
  getElementById(id: string): PageElement | null;
  createElement(tag: string): PageElement;
  createElementNS(namespace: string, tag: string): PageElement;
}

/**
 * The script of the status page. It runs in a browser, so it refers to nothing outside of itself. All text is set as
 * text content: what requesters choose, such as a topic's name in a message, can't become markup.
 */
export function statusScript(document: PageDocument): void {
  const POLL_MS = 2_000;
  const SVG = 'http://www.w3.org/2000/svg';
  const HOUR_MS = 3_600_000;
  const YEAR_MS = 31_556_952_000;
  let before: Status | undefined;

  const at = (id: string): PageElement => {
    const found = document.getElementById(id);
    if (found === null) throw new Error(`no element ${id}`);
    return found;
  };
  const element = (tag: string, text = '', className = ''): PageElement => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (className !== '') made.className = className;
    return made;
  };
  const time = (ms: number): string => new Date(ms).toISOString().replace('T', ' ').slice(0, 19);
  const span = (ms: number): string => {
    const size = Math.abs(ms);
    if (size < 1_000) return `${Math.round(ms)} ms`;
    if (size < 120_000) return `${(ms / 1_000).toFixed(1)} s`;
    if (size < 2 * HOUR_MS) return `${(ms / 60_000).toFixed(1)} min`;
    return size < 48 * HOUR_MS ? `${(ms / HOUR_MS).toFixed(1)} h` : `${(ms / (24 * HOUR_MS)).toFixed(1)} d`;
  };

  /** Fills the body of a table; says so if there is nothing. */
  const fill = (id: string, rows: readonly (readonly string[])[], none: string): void => {
    const lines = (rows.length > 0 ? rows : [[none]]).map((cells) => {
      const line = element('tr');
      line.append(...cells.map((cell) => element('td', cell)));
      return line;
    });
    at(id).replaceChildren(...lines);
  };

  const drawGate = (gate: readonly GateChange[], nowMs: number): void => {
    const fromMs = nowMs - HOUR_MS;
    const bars = gate.map(({ at_ms, reason }, i) => {
      const beginMs = Math.max(at_ms, fromMs);
      const endMs = gate[i + 1]?.at_ms ?? nowMs;
      const bar = document.createElementNS(SVG, 'rect');
      bar.setAttribute('x', String((1_000 * (beginMs - fromMs)) / HOUR_MS));
      bar.setAttribute('width', String(Math.max(1, (1_000 * (endMs - beginMs)) / HOUR_MS)));
      bar.setAttribute('height', '24');
      bar.setAttribute('class', reason === null ? 'open' : 'closed');
      const title = document.createElementNS(SVG, 'title');
      title.textContent = `${reason ?? 'open'} from ${time(beginMs)}`;
      bar.append(title);
      return bar;
    });
    at('gate').replaceChildren(...bars);
    const changes = gate.map(({ at_ms, reason }) => [time(at_ms), reason ?? 'open']);
    fill('gate-changes', changes.reverse().slice(0, 10), 'no change');
  };

  const drawRates = (status: Status): void => {
    const { totals, now_ms: nowMs } = status;
    const seconds = before === undefined ? 0 : (nowMs - before.now_ms) / 1_000;
    const rate = (now: number, then: number | undefined) =>
      seconds > 0 && then !== undefined && now >= then ? `${Math.round((now - then) / seconds)}/s` : '–';
    at('rate-ids').textContent = rate(totals.ids, before?.totals.ids);
    at('rate-requests').textContent = rate(totals.requests, before?.totals.requests);
    at('rate-numbers').textContent = rate(totals.numbers, before?.totals.numbers);
    before = status;
  };

  const drawState = ({
    ready,
    reason,
    detail,
    remedy,
    warning,
    now_ms: nowMs,
    started_ms: startedMs,
  }: Status): void => {
    at('state').textContent = ready ? 'Ready' : `Not ready: ${reason}`;
    at('state').className = ready ? 'open' : 'closed';
    at('detail').textContent = detail ?? warning ?? '';
    at('meaning').textContent = remedy === null ? '' : `What it means: ${remedy.meaning}`;
    at('remedy').textContent = remedy === null ? '' : `What to do: ${remedy.remedy}`;
    at('uptime').textContent = `started ${time(startedMs)} UTC, ${span(nowMs - startedMs)} ago`;
  };

  const margin = (ms: number | null): string => (ms === null ? 'unknown: the clock is wrong' : span(ms));

  const drawIdentity = ({ identity, layout, now_ms: nowMs, kafka }: Status): void => {
    at('worker').textContent = `${identity.worker_id ?? 'none'}`;
    at('datacenter').textContent = `${identity.datacenter_id}`;
    at('fence').textContent = identity.fence ?? 'none';
    at('lease').textContent = margin(identity.lease_margin_ms);
    at('ceiling').textContent = margin(identity.ceiling_ahead_ms);
    at('layout').textContent = layout.name;
    at('years').textContent =
      `${((layout.ends_ms - nowMs) / YEAR_MS).toFixed(1)} years, until ${time(layout.ends_ms)} UTC`;
    const unreached = kafka.unreached.map(({ broker, partition }) => `${broker} (partition ${partition})`).join(', ');
    at('kafka').textContent =
      unreached === '' ? `last answer ${span(kafka.silent_ms)} ago` : `no answer from ${unreached}`;
  };

  const asOf = (read: { readonly as_of_ms: number } | null, error: string | null): string =>
    [...(read === null ? [] : [`as of ${time(read.as_of_ms)} UTC`]), error ?? ''].join(' ');

  /** Rising numbers, with those that follow each other as a range. */
  const runs = (numbers: readonly number[]): string => {
    const found: [number, number][] = [];
    for (const number of numbers) {
      const last = found.at(-1);
      if (last !== undefined && number === last[1] + 1) last[1] = number;
      else found.push([number, number]);
    }
    const texts = found.map(([from, to]) => (from === to ? `${from}` : `${from}–${to}`));
    return texts.length === 0 ? 'none' : texts.join(', ');
  };

  const drawTables = (status: Status): void => {
    const remembers = (sinceMs: number | null) =>
      sinceMs === null ? '–' : sinceMs === 0 ? 'always' : `${time(sinceMs)} UTC`;
    fill(
      'partitions',
      status.partitions.map((one) => [
        String(one.partition),
        one.owned ? 'owner' : 'standby',
        one.copy,
        String(one.copy_lag),
        span(one.oldest_request_ms),
        String(one.large_requests),
        remembers(one.remembers_since_ms),
      ]),
      'none yet',
    );
    fill(
      'drift',
      status.drift.map((one) => [one.broker, span(one.low_ms), span(one.high_ms)]),
      'no broker has answered yet',
    );
    fill(
      'quotas',
      status.quotas.map((one) => [one.prefix, one.limits, `${Math.round(100 * one.used)} %`]),
      'no quotas are configured',
    );
    fill(
      'group',
      (status.group?.members ?? []).map((one) => [one.name, one.host, runs(one.owned), runs(one.standbys)]),
      'not read yet',
    );
    at('group-as-of').textContent = asOf(status.group, status.group_error);
    const known = status.worker_ids;
    fill(
      'workers',
      (known?.ids ?? []).map((one) => [
        String(one.worker_id),
        one.holder ?? 'free',
        one.fence ?? '',
        one.ceiling_ahead_ms === null ? '–' : span(one.ceiling_ahead_ms),
      ]),
      'not read yet',
    );
    at('workers-as-of').textContent = asOf(known, status.worker_ids_error);
  };

  const poll = async (): Promise<void> => {
    try {
      const response = await fetch('status');
      if (!response.ok) throw new Error('the worker is starting');
      const status = (await response.json()) as Status;
      drawState(status);
      drawRates(status);
      drawIdentity(status);
      drawGate(status.gate, status.now_ms);
      drawTables(status);
      at('connection').textContent = `updated ${time(status.now_ms)} UTC`;
    } catch {
      at('connection').textContent = 'the worker does not answer; what is shown may be old';
    }
    setTimeout(() => void poll(), POLL_MS);
  };

  const drawDecoded = (decoded: DecodedStatus): void => {
    at('decoded').textContent = `${decoded.form}: ${decoded.id} = ${decoded.hex} (${decoded.layout})`;
    const shown = decoded.fields.map(({ label, bits, value, time_ms: timeMs }, i) => {
      const field = element('span', '', `field f${i % 4}`);
      const meaning = timeMs === undefined ? value : `${new Date(timeMs).toISOString()}`;
      field.append(element('b', label), element('code', bits), element('i', meaning));
      return field;
    });
    at('bits').replaceChildren(...shown);
  };

  const decode = async (): Promise<void> => {
    try {
      const response = await fetch(`decode?id=${encodeURIComponent(at('id').value.trim())}`);
      const body = (await response.json()) as DecodedStatus & { readonly detail?: string };
      if (response.ok) return drawDecoded(body);
      at('decoded').textContent = body.detail ?? 'this is not an ID';
    } catch {
      at('decoded').textContent = 'the worker does not answer';
    }
    at('bits').replaceChildren();
  };

  at('decode').addEventListener('submit', (event) => {
    event.preventDefault();
    void decode();
  });
  void poll();
}
