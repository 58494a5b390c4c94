#!/usr/bin/env node
// The command of the installed package. An older Node gets a clear error, before anything is loaded that it does not
// support.
const OLDEST_NODE = 24;
const { node } = process.versions;

if (Number.parseInt(node, 10) >= OLDEST_NODE) await import('./main.ts');
else {
  process.stderr.write(
    `idalloc: this command needs Node ${OLDEST_NODE} or later, and this is ${node}; '@idalloc/client' works with it\n`,
  );
  process.exitCode = 78;
}
