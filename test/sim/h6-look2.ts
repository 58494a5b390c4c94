import { simulate } from './simulation.ts';
import { askedIn } from '../cli/audit/corruptions.ts';
const { history, trace } = await simulate(35, { traced: true });
const r = history.topics!.records.find((x) => x.topic === 'id.requests' && x.partition === 0 && x.offset === 553)!;
try { console.log(askedIn(r)); } catch (e) { console.log(String(e)); }
console.log(Object.fromEntries(Object.entries(r.headers).map(([k, v]) => [k, String(v)])));
for (const l of history.topics!.records.filter((x) => x.topic.endsWith('.dlt'))) { const o = Object.fromEntries(Object.entries(l.headers).map(([k, v]) => [k, k.includes('offset') || k.includes('partition') ? (v as Buffer).toString('hex') : String(v)])); console.log(l.offset, JSON.stringify(o).slice(0, 600)); }
console.log(history.topics!.logs.answeredBelow);
for (const t of trace) if (/c56\b|0\/553/.test(t)) console.log(t);
