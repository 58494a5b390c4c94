/**
 * Where the project is published, for the package.json of each package. These are placeholders: whoever publishes it
 * sets their own here, and in the first command of docs/quickstart.md.
 */
export const PLACES = {
  repository: { type: 'git', url: 'git+https://git.example.com/idalloc/idalloc.git' },
  homepage: 'https://idalloc.example.com',
  bugs: { url: 'https://git.example.com/idalloc/idalloc/issues' },
} as const;
