// Writes src/codec/schemas.ts from schemas/*.avsc. Usage: npm run schemas
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from './paths.ts';

const HEAD = `// Written by 'npm run schemas' from schemas/*.avsc.

/**
 * The Avro schemas of requests and replies, by file name. Files would be lost when a service bundles the client, and
 * modules they can't be: Node imports JSON by the extension .json alone, and Rollup not without a plugin.
 */
`;
const LEDGER_HEAD = `
/** The schemas of the ledger. They are apart, since the client bundles none of them. */
`;

/** The module that holds the schemas' texts. */
export const SCHEMAS_MODULE = join(ROOT, 'src/codec/schemas.ts');

/** The text of the module. */
export function renderSchemas(): string {
  const dir = join(ROOT, 'schemas');
  const files = readdirSync(dir).filter((file) => file.endsWith('.avsc'));
  const tableOf = (name: string, ofLedger: boolean): string => {
    const entries = files
      .sort()
      .filter((file) => file.startsWith('ledger-') === ofLedger)
      .map((file) => {
        const text = readFileSync(join(dir, file), 'utf8').replaceAll(/[\\`]|\$\{/g, (found) => `\\${found}`);
        return `  '${file.slice(0, -'.avsc'.length)}': \`${text}\`,\n`;
      });
    return `export const ${name} = {\n${entries.join('')}} as const;\n`;
  };
  return `${HEAD}${tableOf('SCHEMAS', false)}${LEDGER_HEAD}${tableOf('LEDGER_SCHEMAS', true)}`;
}

if (import.meta.main) writeFileSync(SCHEMAS_MODULE, renderSchemas());
