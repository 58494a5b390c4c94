export function isInstalled(lockfile: string, record: string | undefined): boolean;
