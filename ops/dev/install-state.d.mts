export function isInstalled(lockfile: string, record: string | undefined): boolean;
export function packagePaths(lockfile: string): string[];
