/** A password, key or certificate as it is now. It is asked for at each use, since the file that it is in may be replaced. */
export type Secret = () => string;
