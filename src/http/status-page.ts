import { createHash } from 'node:crypto';
import type { DecodedStatus, GateChange, Status } from './status.ts';

const STYLE = `:root{color-scheme:light dark;font:16px/1.45 system-ui,sans-serif;--open:#1a7f37;--closed:#cf222e;--line:#8886;--soft:#8882}
@media(prefers-color-scheme:dark){:root{--open:#3fb950;--closed:#ff7b72}}
body{max-width:76rem;margin:0 auto;padding:1rem;overflow-wrap:anywhere}
h1{font-size:1rem;font-weight:600;margin:0}
h2{font-size:1rem;margin:0 0 .5rem}
#state{font-size:1.6rem;font-weight:700;margin:.2rem 0}
#state.open{color:var(--open)}#state.closed{color:var(--closed)}
.grid{display:grid;gap:1rem;grid-template-columns:repeat(auto-fit,minmax(min(100%,22rem),1fr));margin-top:1rem}
section{border:1px solid var(--line);border-radius:.4rem;padding:.8rem;min-width:0}
section.wide{grid-column:1/-1}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem .8rem;margin:0}
dt{opacity:.75}dd{margin:0;font-variant-numeric:tabular-nums}
.scroll{overflow-x:auto;background:linear-gradient(90deg,canvas 1rem,#0000) 0/2.5rem 100% no-repeat local,linear-gradient(270deg,canvas 1rem,#0000) 100%/2.5rem 100% no-repeat local,linear-gradient(90deg,#8888,#0000) 0/1rem 100% no-repeat,linear-gradient(270deg,#8888,#0000) 100%/1rem 100% no-repeat}
table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.2rem .8rem .2rem 0;border-top:1px solid var(--soft);white-space:nowrap}
th{font-weight:600;opacity:.75;white-space:normal;overflow-wrap:normal}
#quotas td{white-space:normal}
svg{width:100%;height:24px;background:var(--soft)}
rect.open{fill:var(--open)}rect.closed{fill:var(--closed)}
form{display:flex;gap:.5rem;flex-wrap:wrap}
input{flex:1 1 14rem;min-width:0;font:inherit;padding:.3rem}
button{font:inherit;padding:.3rem .8rem}
#bits{display:flex;flex-wrap:wrap;gap:.4rem;margin-top:.5rem}
.field{display:flex;flex-direction:column;border-top:4px solid var(--line);padding-top:.2rem}
.field code{font:12px ui-monospace,monospace}.field i{font-style:normal;opacity:.75}
.f1{border-color:#0969da}.f2{border-color:#bf8700}.f3{border-color:#8250df}
p{margin:.3rem 0}
.quiet{opacity:.75;font-size:.875rem}`;

const SCRIPT = `(${statusScript})(document)`;

const hashOf = (text: string) => `'sha256-${createHash('sha256').update(text).digest('base64')}'`;

/** Only this script and this style run, and they reach only this listener. */
export const STATUS_PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy': [
    "default-src 'none'",
    `style-src ${hashOf(STYLE)}`,
    `script-src ${hashOf(SCRIPT)}`,
    "connect-src 'self'",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
};

const facts = (rows: readonly (readonly [string, string])[]) =>
  `<dl>${rows.map(([label, id]) => `<dt>${label}</dt><dd id="${id}">–</dd>`).join('')}</dl>`;

const tableOf = (id: string, label: string, heads: readonly string[]) =>
  `<div class="scroll" tabindex="0" role="region" aria-label="${label}"><table><thead><tr>${heads
    .map((head) => `<th scope="col">${head}</th>`)
    .join('')}</tr></thead><tbody id="${id}"></tbody></table></div>`;

const section = (title: string, content: string, className = '') =>
  `<section${className}><h2>${title}</h2>${content}</section>`;

const WIDE = ' class="wide"';

/** The status page: one document, the same for every request, which polls the status. */
export const STATUS_PAGE = [
  '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
  `<title>idalloc worker</title><style>${STYLE}</style>`,
  '<header><h1>idalloc worker</h1><p id="state" role="status" aria-live="polite">Loading</p>',
  '<p id="detail"></p><p id="meaning"></p><p id="remedy"></p>',
  '<p class="quiet"><span id="uptime"></span> · <span id="connection"></span></p></header><main class="grid">',
  section(
    'Identity',
    facts([
      ['worker ID', 'worker'],
      ['datacenter ID', 'datacenter'],
      ['fence', 'fence'],
      ['lease, time left', 'lease'],
      ['ceiling ahead', 'ceiling'],
      ['layout', 'layout'],
      ['layout ends in', 'years'],
      ['Kafka', 'kafka'],
    ]),
  ),
  section(
    'Served now',
    facts([
      ['requests', 'rate-requests'],
      ['new IDs', 'rate-ids'],
      ['numbers', 'rate-numbers'],
    ]),
  ),
  section(
    'Gate, last hour',
    `<svg id="gate" viewBox="0 0 1000 24" preserveAspectRatio="none" role="img" aria-label="When the gate was open in the last hour"></svg>${tableOf('gate-changes', 'Changes of the gate', ['since (UTC)', 'state'])}`,
    WIDE,
  ),
  section(
    'Partitions of this worker',
    tableOf('partitions', 'Partitions', [
      'partition',
      'role',
      'copy',
      'copy lags',
      'oldest request',
      'large',
      'remembers since',
    ]),
    WIDE,
  ),
  section(
    'Workers of the request group',
    `${tableOf('group', 'Workers', ['worker', 'host', 'answers partitions', 'stands by for'])}<p class="quiet" id="group-as-of"></p>`,
    WIDE,
  ),
  section(
    'Worker IDs of the datacenter',
    `${tableOf('workers', 'Worker IDs', ['worker ID', 'holder', 'fence', 'ceiling ahead'])}<p class="quiet" id="workers-as-of"></p>`,
  ),
  section('Clock against the brokers', tableOf('drift', 'Drift', ['broker', 'at least', 'at most'])),
  section('Quotas', tableOf('quotas', 'Quotas', ['prefix', 'limits', 'used'])),
  section(
    'Decode an ID',
    '<form id="decode"><input id="id" aria-label="ID, in any form" maxlength="200" autocomplete="off" spellcheck="false"><button>Decode</button></form><p id="decoded" role="status" aria-live="polite"></p><div id="bits"></div>',
    WIDE,
  ),
  `</main><noscript>This page needs JavaScript; <a href="status">status</a> has the same as JSON.</noscript><script>${SCRIPT}</script></html>`,
].join('\n');

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
function statusScript(document: PageDocument): void {
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

  const drawState = (status: Status): void => {
    const { ready, reason, detail, remedy, warning, now_ms: nowMs, started_ms: startedMs } = status;
    at('state').textContent = ready ? 'Ready' : `Not ready: ${reason}`;
    at('state').className = ready ? 'open' : 'closed';
    at('detail').textContent = detail ?? warning ?? '';
    at('meaning').textContent = remedy === null ? '' : `What it means: ${remedy.meaning}`;
    at('remedy').textContent = remedy === null ? '' : `What to do: ${remedy.remedy}`;
    at('uptime').textContent = `started ${time(startedMs)} UTC, ${span(nowMs - startedMs)} ago`;
  };

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
    const unreached = [...new Set(kafka.unreached.map(({ broker }) => broker))]
      .map((broker) => {
        const its = kafka.unreached.filter((one) => one.broker === broker).map(({ partition }) => partition);
        return `${broker} (partitions ${runs([...new Set(its)].sort((one, other) => one - other))})`;
      })
      .join(', ');
    at('kafka').textContent =
      unreached === '' ? `last answer ${span(kafka.silent_ms)} ago` : `no answer from ${unreached}`;
  };

  const asOf = (read: { readonly as_of_ms: number } | null, error: string | null): string =>
    [...(read === null ? [] : [`as of ${time(read.as_of_ms)} UTC`]), error ?? ''].join(' ');

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
