import { once } from 'node:events';
import { IdClient } from '../../src/client/index.ts';

/**
 * A service that uses the client library: it sends a request, closes its client at the first line on stdin, with a
 * request in flight, and has nothing else to do. It never calls exit(), so an open handle of the client keeps it
 * running.
 */
const [broker = '', requestTopic = '', replyTopic = ''] = process.argv.slice(2);
const client = await IdClient.connect({ brokers: [broker], requestTopic, replyTopic });
await client.request({ count: 1 });
process.stdout.write('answered\n');
await once(process.stdin, 'data');
process.stdin.destroy();
const unanswered = client.request({ count: 1 }).catch((error: unknown) => error);
const begunMs = performance.now();
await client.close();
await unanswered;
process.stdout.write(`${JSON.stringify({ closedMs: Math.round(performance.now() - begunMs) })}\n`);
