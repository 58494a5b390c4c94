// Plain JavaScript for the same reason as process-identity.

/**
 * True if node_modules, as npm last installed it, matches the lockfile. `record` is the text of
 * node_modules/.package-lock.json, which npm removes before and writes after an installation, so an interrupted one
 * leaves none. Optional packages may be missing: those of other platforms always are.
 * @param {string} lockfile
 * @param {string | undefined} record
 */
export function isInstalled(lockfile, record) {
  if (record === undefined) return false;
  const wanted = packagesOf(lockfile);
  const found = packagesOf(record);
  for (const [path, entry] of Object.entries(found)) if (!same(entry, wanted[path])) return false;
  return Object.entries(wanted).every(([path, entry]) => path === '' || path in found || entry.optional || entry.link);
}

/**
 * @param {string} text
 * @returns {Record<string, { version?: string, integrity?: string, optional?: boolean, link?: boolean }>}
 */
function packagesOf(text) {
  try {
    return JSON.parse(text).packages ?? {};
  } catch (error) {
    if (error instanceof SyntaxError) return {};
    throw error;
  }
}

/**
 * @param {{ version?: string, integrity?: string }} found
 * @param {{ version?: string, integrity?: string } | undefined} wanted
 */
function same(found, wanted) {
  return wanted !== undefined && found.version === wanted.version && found.integrity === wanted.integrity;
}

/**
 * The paths of the packages that npm installs on every platform. A package is there once its package.json is.
 * @param {string} lockfile
 */
export function packagePaths(lockfile) {
  return Object.entries(packagesOf(lockfile)).flatMap(([path, { optional, link }]) =>
    path === '' || optional || link ? [] : [path],
  );
}
