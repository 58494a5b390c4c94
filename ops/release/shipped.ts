import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { ROOT } from '../dev/paths.ts';

/** A package that is installed with ours. */
export interface Shipped {
  readonly name: string;
  readonly version: string;
  readonly license: string;
}

interface Lockfile {
  readonly packages: Readonly<Record<string, LockedPackage>>;
}

interface LockedPackage {
  readonly version?: string;
  readonly license?: string;
  readonly dev?: boolean;
}

const IN_MODULES = /(?:^|\/)node_modules\/((?:@[^/]+\/)?[^/]+)$/;

/** The packages of the lockfile that not only development needs, each version once, sorted by name. */
export function shippedOf({ packages }: Lockfile): Shipped[] {
  const found = Object.entries(packages).flatMap(([path, { version, license, dev }]) => {
    const name = IN_MODULES.exec(path)?.[1];
    if (name === undefined || version === undefined || dev === true) return [];
    return [{ name, version, license: license ?? 'not stated' }];
  });
  const each = new Map(found.map((one) => [idOf(one), one]));
  return [...each.values()].sort((one, other) => (idOf(one) < idOf(other) ? -1 : 1));
}

/** The name of a package in npm's SBOM. */
export function idOf({ name, version }: Pick<Shipped, 'name' | 'version'>): string {
  return `${name}@${version}`;
}

export function readLockfile(): Lockfile {
  return JSON.parse(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'));
}
