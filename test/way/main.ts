/** `npm run way`: how much there is to read for one request and one take-over, as files and functions, by room. */
import { parseArgs } from 'node:util';
import { folderOf, GOALS, measureWays, WAYS, type WayName } from './way.ts';

const HELP = `npm run way -- [NAME...] [--json]

Counts the files and functions of src that one event passes, in workers over simulated Kafka and etcd:

${Object.entries(WAYS)
  .map(([name, what]) => `  ${name.padEnd(9)} ${what}`)
  .join('\n')}

"own" is what runs for it and does not run in an idle worker; "whole" is all that runs for it. Functions without a name, such as
callbacks, are not counted.

  NAME    lists the functions of these, file by file
  --json  prints one JSON object: of each way, its functions by file
  --help  shows this text
`;

function isWay(name: string): name is WayName {
  return Object.hasOwn(WAYS, name);
}

async function main(): Promise<number> {
  const flag = { type: 'boolean' } as const;
  const { values, positionals } = parseArgs({ options: { json: flag, help: flag }, allowPositionals: true });
  if (values.help) {
    process.stdout.write(HELP);
    return 0;
  }
  const unknown = positionals.find((name) => !isWay(name));
  if (unknown !== undefined) throw new Error(`'${unknown}' is not one of ${Object.keys(WAYS).join(', ')}`);
  const ways = await measureWays();
  if (values.json) {
    const plain = Object.entries(ways).map(([name, { own, whole }]) => {
      return [name, { own: Object.fromEntries(own), ...(whole && { whole: Object.fromEntries(whole) }) }];
    });
    process.stdout.write(`${JSON.stringify(Object.fromEntries(plain))}\n`);
    return 0;
  }
  for (const name of Object.keys(WAYS).filter(isWay)) {
    const { own, whole } = ways[name];
    const goal = GOALS[name] === undefined ? '' : `; the goal is ${GOALS[name]} files`;
    process.stdout.write(`\n${name}: ${WAYS[name]}\n  own: ${counted(own)}${goal}\n`);
    if (whole !== undefined) process.stdout.write(`  whole: ${counted(whole)}\n`);
    for (const [room, files] of Map.groupBy([...own], ([file]) => folderOf(file))) {
      const functions = files.reduce((sum, [, names]) => sum + names.length, 0);
      process.stdout.write(`    ${room.padEnd(18)} ${shown(files.length, 'file')}, ${shown(functions, 'function')}\n`);
      if (!positionals.includes(name)) continue;
      for (const [file, names] of files) process.stdout.write(`      ${file}: ${names.join(', ')}\n`);
    }
  }
  return 0;
}

function counted(functions: ReadonlyMap<string, readonly string[]>): string {
  const rooms = new Set([...functions.keys()].map(folderOf)).size;
  const count = [...functions.values()].flat().length;
  return `${shown(functions.size, 'file')} with ${shown(count, 'function')} in ${shown(rooms, 'room')}`;
}

function shown(count: number, what: string): string {
  return `${count} ${what}${count === 1 ? '' : 's'}`;
}

process.exitCode = await main().catch((error: unknown) => {
  process.stderr.write(`way: ${error instanceof Error ? error.message : error}\n`);
  return 1;
});
