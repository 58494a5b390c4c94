import type { Config } from '../../config/config.ts';
import { describeError, IdallocError } from '../../errors.ts';
import type { CliContext } from '../context.ts';
import { withSequences } from '../sequence/sequence-session.ts';
import { type SequenceView, viewSequences } from '../sequence/sequence-view.ts';
import { counted } from '../table.ts';
import { type Check, fault, ok, warn } from './checks.ts';

const NAME = 'sequences';
const MAX_NAMED = 10;

/** Compares what etcd holds of the sequences with what the ledger shows. Without sequences the ledger is not read. */
export async function checkSequences(context: CliContext, config: Config): Promise<Check> {
  try {
    return await withSequences(context, async (session) => {
      const { ledger, requestPartitions } = config.topics;
      const prefixes = Array.from({ length: requestPartitions }, (_, partition) => session.keysOf(partition).sequences);
      const found = await Promise.all(prefixes.map((from) => session.etcd.range(from, { from, limit: 1 })));
      if (found.every(({ kvs }) => kvs.length === 0)) return ok(NAME, `etcd holds none of '${ledger}'`);
      return judgeSequences((await viewSequences(session, false)).views);
    });
  } catch (error) {
    if (!(error instanceof IdallocError) || error.code === 'STOPPING') throw error;
    return warn(
      NAME,
      `unknown: ${describeError(error)}`,
      "see the message; 'idalloc sequence list' makes the same comparison",
    );
  }
}

/** All but a stopped sequence are settled by whoever looks next. */
export function judgeSequences(views: readonly SequenceView[]): Check {
  const named = (accord: SequenceView['accord']) =>
    views.filter((one) => one.accord === accord).map(({ sequence }) => sequence);
  const [stopped, lost] = [named('stopped'), named('lost')];
  if (stopped.length > 0) {
    const detail = `the ledger contradicts what etcd holds of ${shown(stopped)}: no numbers are given out`;
    return fault(NAME, detail, 'stop the workers of this datacenter, then run: idalloc namespace rebuild');
  }
  if (lost.length > 0) {
    const detail = `the ledger has lost numbers of ${shown(lost)}; they go on at the number that etcd holds`;
    return warn(
      NAME,
      detail,
      'find out what Kafka lost, with idalloc audit: documents whose numbers are gone get FORGOTTEN',
    );
  }
  const waiting = views.filter(({ accord }) => accord !== 'agree').length;
  const rest = waiting === 0 ? 'the ledger and etcd agree' : `workers settle ${waiting} of them`;
  return ok(NAME, `${counted(views.length, 'sequence')}; ${rest}`);
}

function shown(names: readonly string[]): string {
  const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : '';
  return `${names.slice(0, MAX_NAMED).join(', ')}${more}`;
}
