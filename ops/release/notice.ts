// Writes NOTICE: the packages that are shipped with idalloc, with their licences. Usage: npm run notice
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../dev/paths.ts';
import { idOf, readLockfile, type Shipped, shippedOf } from './shipped.ts';

const HEAD = `idalloc
Licensed under the Apache License, Version 2.0: see LICENSE.

It is used together with the packages below, each under its own licence; a package has the text and its copyright in its own
directory. Packages for other platforms and processors are named as well. Written by 'npm run notice'.
`;

/** The whole text, by licence. */
export function noticeOf(shipped: readonly Shipped[]): string {
  const licenses = [...new Set(shipped.map(({ license }) => license))].sort();
  const parts = licenses.map((license) => {
    const lines = shipped.filter((one) => one.license === license).map((one) => `  ${idOf(one)}\n`);
    return `\n${license}:\n${lines.join('')}`;
  });
  return HEAD + parts.join('');
}

if (import.meta.main) writeFileSync(join(ROOT, 'NOTICE'), noticeOf(shippedOf(readLockfile())));
