// Shows a process that its disks are nearly full: node --import full-disk.mjs. Only an administrator can mount one that
// is.
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';

const LEFT = 0.05;
const { statfsSync } = fs;

fs.statfsSync = (...args) => {
  const disk = statfsSync(...args);
  return { ...disk, bavail: Math.floor(disk.blocks * LEFT) };
};
syncBuiltinESMExports();
