import { fastify } from 'fastify';

/**
 * The baseline of bench:http: Fastify with its defaults, and two handlers that send texts as a worker sends them. It
 * allocates nothing, identifies nobody, and bounds nothing. Prints its URL.
 */
const ID = '117652452056031232';
const VIEW =
  `{"value_string":"${ID}","value_hex":"01a1fc2e13849000","breakdown":` +
  '{"timestamp_ms":1795655632123,"datacenter_id":4,"worker_id":18,"sequence_number":1234}}';
const IDS = `{"ids":[${new Array<string>(100).fill(VIEW).join()}],"generated_at":"2026-11-26T01:13:52.123Z"}`;

const app = fastify({ logger: false });
app.post('/api/v1/id', async (_request, reply) => reply.type('application/json').send(`{"id":"${ID}"}`));
app.get('/api/v1/ids', async (_request, reply) => reply.type('application/json').send(IDS));
process.stdout.write(`${await app.listen({ host: '127.0.0.1', port: 0 })}\n`);
