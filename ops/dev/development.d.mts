/** See development.mjs. */
export function developmentServers(
  file: string,
  env: NodeJS.ProcessEnv,
): { readonly variables: Record<string, string> } | { readonly missing: string } | undefined;
