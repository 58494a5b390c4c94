import { certificateExpiries } from '../../config/certificates.ts';
import { type Config, type KafkaConfig, loadWorkerConfig } from '../../config/config.ts';
import { describeError, IdallocError } from '../../errors.ts';
import { type CliContext, EXIT } from '../context.ts';
import type { JsonFlag } from '../options.ts';
import { counted, present } from '../output.ts';
import { withSequences } from '../sequence/sequence-session.ts';
import { type SequenceView, viewSequences } from '../sequence/sequence-view.ts';
import { palette } from '../terminal.ts';
import { registryFault } from '../topics/topics-run.ts';
import { type Check, fault, judgeCertificate, judgeVariables, ok, warn } from './checks.ts';
import { checkEtcd } from './etcd.ts';
import { checkKafka } from './kafka.ts';
import { checkMachine } from './machine.ts';

/** Makes all checks, and prints them. */
export async function runDoctor(context: CliContext, { json }: JsonFlag): Promise<void> {
  const config = loadWorkerConfig(context.env, undefined, context.now());
  const kafka = checkKafka(context, config);
  const groups = [
    judgeVariables(config.warnings),
    certificateExpiries(config).map((one) => judgeCertificate(one.variable, one.expiresAtMs, context.now())),
    kafka.then(({ checks }) => checks),
    checkRegistry(config),
    checkEtcd(context, config, kafka),
    kafka.then(() => checkSequences(context, config)),
    checkMachine(config),
  ];
  const checks = (await Promise.all(groups)).flat();
  if (checks.some(({ state }) => state === 'fault')) context.setExitCode(EXIT.failed);
  present(context, json, { checks }, () => doctorText(context, checks));
}

async function checkRegistry(config: KafkaConfig): Promise<Check[]> {
  if (config.registry === undefined) return [];
  const name = `schema registry ${config.registry.url}`;
  const fault = await registryFault(config);
  if (fault === undefined) return [{ name, state: 'ok', detail: 'has the schemas of requests and replies' }];
  return [{ name, state: 'fault', detail: fault.message, fix: fault.fix }];
}

/** One line for each check; a fix that several checks share is below the last of them. */
export function doctorText(context: Pick<CliContext, 'terminal' | 'env'>, checks: readonly Check[]): string {
  const paint = palette(context);
  const marks = { ok: paint.green('ok   '), warn: paint.yellow('warn '), fault: paint.red('fault') } as const;
  const width = Math.max(...checks.map(({ name }) => name.length));
  const lastOf = new Map(checks.map(({ fix }, i) => [fix, i]));
  const lines = checks.flatMap(({ name, state, detail, fix }, i) => [
    `${marks[state]}  ${name.padEnd(width)}  ${detail}`,
    ...(fix === undefined || lastOf.get(fix) !== i ? [] : [`${' '.repeat(width + 9)}${paint.dim('fix:')} ${fix}`]),
  ]);
  const faults = checks.filter(({ state }) => state === 'fault').length;
  lines.push(faults === 0 ? paint.green('no fault: a worker can run') : paint.red(counted(faults, 'fault')));
  return lines.map((line) => `${line}\n`).join('');
}

const SEQUENCES = 'sequences';
const MAX_NAMED = 10;

/** Compares what etcd holds of the sequences with what the ledger shows. Without sequences the ledger is not read. */
export async function checkSequences(context: CliContext, config: Config): Promise<Check> {
  try {
    return await withSequences(context, async (session) => {
      const { ledger, requestPartitions } = config.topics;
      const prefixes = Array.from({ length: requestPartitions }, (_, partition) => session.keysOf(partition).sequences);
      const found = await Promise.all(prefixes.map((from) => session.etcd.range(from, { from, limit: 1 })));
      if (found.every(({ kvs }) => kvs.length === 0)) return ok(SEQUENCES, `etcd holds none of '${ledger}'`);
      return judgeSequences((await viewSequences(session, false)).views);
    });
  } catch (error) {
    if (!(error instanceof IdallocError) || error.code === 'STOPPING') throw error;
    return warn(
      SEQUENCES,
      `unknown: ${describeError(error)}`,
      "see the message; 'idalloc sequence list' makes the same comparison",
    );
  }
}

/** Whoever looks next settles every difference but that of a stopped sequence. */
export function judgeSequences(views: readonly SequenceView[]): Check {
  const named = (accord: SequenceView['accord']) =>
    views.filter((one) => one.accord === accord).map(({ sequence }) => sequence);
  const [stopped, lost] = [named('stopped'), named('lost')];
  if (stopped.length > 0) {
    const detail = `the ledger contradicts what etcd holds of ${shown(stopped)}: no numbers are given out`;
    return fault(SEQUENCES, detail, 'stop the workers of this datacenter, then run: idalloc namespace rebuild');
  }
  if (lost.length > 0) {
    const detail = `the ledger has lost numbers of ${shown(lost)}; they go on at the number that etcd holds`;
    return warn(
      SEQUENCES,
      detail,
      'find out what Kafka lost, with idalloc audit: documents whose numbers are gone get FORGOTTEN',
    );
  }
  const waiting = views.filter(({ accord }) => accord !== 'agree').length;
  const rest = waiting === 0 ? 'the ledger and etcd agree' : `workers settle ${waiting} of them`;
  return ok(SEQUENCES, `${counted(views.length, 'sequence')}; ${rest}`);
}

function shown(names: readonly string[]): string {
  const more = names.length > MAX_NAMED ? ` and ${names.length - MAX_NAMED} more` : '';
  return `${names.slice(0, MAX_NAMED).join(', ')}${more}`;
}
