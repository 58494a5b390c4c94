import { withEtcd } from '../../adapters/etcd/etcd.ts';
import { checkSequence } from '../../codec/request-checks.ts';
import { type Config, loadWorkerConfig } from '../../config/config.ts';
import { unlessInvalid } from '../../errors.ts';
import { type EtcdPort, pagesOf } from '../../identity/identity-ports.ts';
import { ledgersRoot } from '../../identity/keys.ts';
import type { CliContext } from '../context.ts';
import { present } from '../output.ts';

const PAGE = 1_000;

/**
 * Prints the names of the sequences that etcd remembers, in their order. It asks neither Kafka nor the ledger: a shell
 * calls it while a command is being typed.
 */
export async function listNames(context: CliContext, json: boolean | undefined): Promise<void> {
  const config = loadWorkerConfig(context.env);
  const names = await withEtcd(config.etcd, (etcd) => namesIn(etcd, config));
  present(context, json, { names }, () => names.map((name) => `${name}\n`).join(''));
}

/** What a shell gets is part of a command line, so only what can be a name is returned. */
export async function namesIn(
  etcd: Pick<EtcdPort, 'range'>,
  {
    etcd: { prefix },
    datacenterId,
    topics,
  }: Pick<Config, 'datacenterId' | 'topics'> & { readonly etcd: { readonly prefix: string } },
): Promise<readonly string[]> {
  const root = `${ledgersRoot(prefix, datacenterId)}${topics.ledger}/`;
  const names = new Set<string>();
  for await (const { key } of pagesOf(etcd, root, PAGE)) {
    const [, name] = /^\d+\/sequences\/(.*)$/s.exec(key.slice(root.length)) ?? [];
    const known = name === undefined ? undefined : unlessInvalid(() => checkSequence(name));
    if (known !== undefined) names.add(known);
  }
  return [...names].sort();
}
