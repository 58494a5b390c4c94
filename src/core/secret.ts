/** Returns the current password, key or certificate. Call it for each use, since its file may be replaced. */
export type Secret = () => string;
