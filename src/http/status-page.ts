import { createHash } from 'node:crypto';
import { statusScript } from './status-script.ts';

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
.scroll{overflow-x:auto}
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
