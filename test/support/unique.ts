import { threadId } from 'node:worker_threads';

/**
 * When and where this module was loaded. No two places are the same on one machine: a process ID is used again only
 * after its process has ended.
 */
const PLACE = [Date.now(), process.pid, threadId].map((part) => part.toString(36)).join('-');
let names = 0;

/**
 * A part of the name of something that tests share servers with, such as a topic or a container. Nothing else on this
 * machine has it, by counting and not by chance. It consists of lower-case letters, digits and hyphens.
 */
export function unique(): string {
  names += 1;
  return `${PLACE}-${names.toString(36)}`;
}
