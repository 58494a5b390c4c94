import { viewId } from '../codec/id-view.ts';
import { numbersConflictText, quotaText, unknownSequenceText } from '../codec/refusal-texts.ts';
import { compose, type Layout, tickStartMs } from '../core/layout.ts';
import { type Ticks, ticks, wallMs } from '../core/units.ts';
import { idBody, idsBody, rangesBody } from './id-body.ts';
import { Problem } from './problem.ts';

type Example = Readonly<Record<string, unknown>>;
/** The bodies of successful responses, by the names of their schemas. */
type Body = 'Ids' | 'Ranges' | 'Id' | 'IdView' | 'Numbers';

/** What the body of each kind of response looks like. All have the same ID, in the layout of the worker. */
export function bodyExamples(layout: Layout): Readonly<Record<Body, Example>> {
  const id = exampleId(layout);
  const generatedAt = wallMs(tickStartMs(layout, exampleTicks(layout)));
  const batch = (count: number) => ({ ranges: [{ first: id, count }], generatedAt });
  const ids = idsBody(layout, batch(1), { run: (work) => work() });
  return {
    Ids: JSON.parse(String(ids)),
    Ranges: JSON.parse(rangesBody(layout, batch(100))),
    Id: JSON.parse(idBody(layout, batch(1))),
    IdView: { ...viewId(layout, id) },
    Numbers: { sequence: SEQUENCE, numbers: ['RE-000041', 'RE-000042'], first: 41, count: 2, step: 1 },
  };
}

/** Some tick that is in every layout; that of the pages in most. */
function exampleTicks({ endTicks }: Layout): Ticks {
  return ticks(Math.min(13_190_700_000, endTicks - 1));
}

function exampleId(layout: Layout): bigint {
  const { maxDatacenter, maxWorker } = layout;
  const [datacenter, worker] = [Math.min(4, maxDatacenter), Math.min(18, maxWorker)];
  return compose(layout, { ticks: exampleTicks(layout), datacenter, worker, sequence: 0 });
}

const SEQUENCE = 'invoices/2027';
const KEPT = { count: 2, replyTopic: 'id.replies.http' };

/** An example of each problem: the code, if it has one, and a text of those that workers send. */
const PROBLEMS: Readonly<Record<number, readonly [code: string | undefined, detail: string]>> = {
  400: ['INVALID_COUNT', 'count must be given once, as an integer from 1 to 100000'],
  401: [undefined, 'a bearer token is required: Authorization: Bearer …'],
  403: [undefined, `numbers of this sequence need a token with the right 'sequences:${SEQUENCE}'`],
  404: ['UNKNOWN_SEQUENCE', unknownSequenceText(SEQUENCE)],
  409: ['SEQUENCE_EXHAUSTED', `the sequence ${SEQUENCE} ends at 999 and continues at 999: request fewer numbers`],
  410: ['SEQUENCE_CLOSED', `the sequence ${SEQUENCE} is closed and gives out no more numbers: use another one`],
  422: ['CONFLICT', numbersConflictText(KEPT, 'order-4711', SEQUENCE)],
  429: ['QUOTA_EXCEEDED', quotaText(KEPT.replyTopic, '1000 IDs a second', 800)],
  503: ['LEASE_LOST', 'this worker does not allocate IDs now: retry, or use another worker'],
  504: ['NO_REPLY', 'no worker has answered in time: send the request again with the same key'],
};

/** The body of an example of this status; undefined for one without. */
export function problemExample(status: number): Example | undefined {
  const [code, detail] = PROBLEMS[status] ?? [];
  if (detail === undefined) return undefined;
  return JSON.parse(new Problem(status, detail, code === undefined ? {} : { code }).body());
}
