import { certificateExpiries } from '../../config/certificates.ts';
import { type Config, type KafkaConfig, loadWorkerConfig } from '../../config/config.ts';
import { type CliContext, EXIT } from '../context.ts';
import { present } from '../present.ts';
import { registryFault } from '../registry.ts';
import { counted } from '../table.ts';
import { palette } from '../terminal.ts';
import { type Check, judgeCertificate, judgeVariables } from './checks.ts';
import { checkMachine } from './machine.ts';
import { checkSequences } from './sequences.ts';
import { checkEtcd, checkKafka } from './servers.ts';

/** Makes all checks, and prints them. */
export async function runDoctor(context: CliContext, json: boolean): Promise<void> {
  const config = loadWorkerConfig(context.env, undefined, context.now());
  const kafka = checkKafka(context, config);
  const groups = [
    judgeVariables(config.warnings),
    checkCertificates(context, config),
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

function checkCertificates({ now }: CliContext, config: Config): Check[] {
  return certificateExpiries(config).map(({ variable, expiresAtMs }) => judgeCertificate(variable, expiresAtMs, now()));
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
