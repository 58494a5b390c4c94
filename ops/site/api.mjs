import { join } from 'node:path';

/** Where the reference of the client's API is in the site. It is made from the code, and not kept. */
export const API_FOLDER = 'docs/reference/api';

/** The sources of the client's entries. */
const ENTRIES = ['src/client/index.ts', 'src/client/testing.ts', 'src/ids/index.ts'];
const PACKAGE = '@idalloc/client';

export const API_SIDEBAR = {
  text: 'API of the client',
  items: [
    { text: PACKAGE, link: `/${API_FOLDER}/client` },
    { text: `${PACKAGE}/testing`, link: `/${API_FOLDER}/client/testing` },
    { text: `${PACKAGE}/ids`, link: `/${API_FOLDER}/ids` },
  ],
};

/** The arguments with which TypeDoc writes the reference to `out`, a page for each entry. */
export function apiOptions(root, out) {
  return [
    ...ENTRIES.flatMap((source) => ['--entryPoints', join(root, source)]),
    ...['--tsconfig', join(root, 'tsconfig.client.json'), '--out', out, '--name', PACKAGE],
    ...['--plugin', 'typedoc-plugin-markdown', '--outputFileStrategy', 'modules', '--readme', 'none'],
    ...['--excludePrivate', '--excludeInternal', '--excludeExternals', '--disableSources', '--disableGit'],
    ...['--hideBreadcrumbs', '--hidePageHeader', '--validation.notExported', 'false', '--treatWarningsAsErrors'],
  ];
}
