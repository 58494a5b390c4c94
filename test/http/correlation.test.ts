import { once } from 'node:events';
import { type IncomingMessage, request } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { afterAll, describe, expect, test } from 'vitest';
import { requestIdOf, traceParentOf } from '../../src/http/correlation.ts';
import { ApiStage } from '../support/api-stage.ts';

const TRACE = '4bf92f3577b34da6a3ce929d0e0e4736';
const PARENT = '00f067aa0ba902b7';
const ZEROS = '0'.repeat(32);
const NEW_ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const NEW_TRACE = /^00-[0-9a-f]{32}-[0-9a-f]{16}-00$/;

const traceOf = (traceparent: string) => traceParentOf({ traceparent });

describe('a request ID', () => {
  test.each(['7', 'order-4711', 'a'.repeat(128), '0190:AZ.az_09~@=+/-', '0b9e4a6c-5d3f-4c1b-9a57-3f0e6a2d8c41'])(
    '%s is taken over',
    (id) => {
      expect(requestIdOf({ 'x-request-id': id })).toBe(id);
    },
  );

  test.each([
    ['none', undefined],
    ['an empty one', ''],
    ['a long one', 'a'.repeat(129)],
    ['two', 'a, b'],
    ['one with a space', 'a b'],
    ['one with a quote', 'a"b'],
    ['one with markup', '<b>'],
    ['one with a control character', 'a\u001bb'],
    ['one beyond ASCII', 'ä'],
  ])('%s is replaced by a new one', (_, id) => {
    const made = requestIdOf(id === undefined ? {} : { 'x-request-id': id });
    expect(made).toMatch(NEW_ID);
    expect(requestIdOf({})).not.toBe(made);
  });
});

describe('a trace', () => {
  test.each([
    ['sampled', `00-${TRACE}-${PARENT}-01`, '01'],
    ['not sampled', `00-${TRACE}-${PARENT}-00`, '00'],
    ['with flags that version 00 does not have', `00-${TRACE}-${PARENT}-ff`, '01'],
    ['with such flags, and not sampled', `00-${TRACE}-${PARENT}-fe`, '00'],
    ['of a later version', `cc-${TRACE}-${PARENT}-01`, '01'],
    ['of a later version, with more', `cc-${TRACE}-${PARENT}-01-what-the-future-will-be`, '01'],
  ])('%s is taken over', (_, sent, flags) => {
    expect(traceOf(sent)).toBe(`00-${TRACE}-${PARENT}-${flags}`);
  });

  test.each([
    ['no trace', ''],
    ['version ff', `ff-${TRACE}-${PARENT}-01`],
    ['version 00 with more', `00-${TRACE}-${PARENT}-01-more`],
    ['a later version with more, without a dash', `cc-${TRACE}-${PARENT}-01.more`],
    ['upper case', `00-${TRACE.toUpperCase()}-${PARENT}-01`],
    ['a trace ID of zeros', `00-${ZEROS}-${PARENT}-01`],
    ['a parent ID of zeros', `00-${TRACE}-${ZEROS.slice(16)}-01`],
    ['a short trace ID', `00-${TRACE.slice(1)}-${PARENT}-01`],
    ['a long parent ID', `00-${TRACE}-${PARENT}0-01`],
    ['no flags', `00-${TRACE}-${PARENT}`],
    ['flags that are no digits', `00-${TRACE}-${PARENT}-0x`],
    ['a version that is no digits', `0.-${TRACE}-${PARENT}-01`],
    ['spaces', ` 00-${TRACE}-${PARENT}-01 `],
    ['two traces', `00-${TRACE}-${PARENT}-01, 00-${TRACE}-${PARENT}-01`],
  ])('%s begins a new one', (_, sent) => {
    const made = traceOf(sent);
    expect(made).toMatch(NEW_TRACE);
    expect(made).not.toContain(TRACE);
    expect(made).not.toContain(ZEROS);
    expect(traceOf(sent)).not.toBe(made);
  });
});

describe('each response has both', async () => {
  const { app } = new ApiStage({ tokens: 'orders:a-token-of-orders' }).api();
  await app.listen({ port: 0, host: '127.0.0.1' });
  const { port } = app.server.address() as AddressInfo;
  afterAll(() => app.close());
  const authorization = 'Bearer a-token-of-orders';
  const own = { 'x-request-id': 'req-1', traceparent: `00-${TRACE}-${PARENT}-01` };
  const ask = async (method: string, path: string, headers: Record<string, string>) => {
    const asked = request({
      host: '127.0.0.1',
      port,
      method,
      path,
      headers: { ...own, ...headers },
      agent: false,
    }).end();
    const [answer] = (await once(asked, 'response')) as [IncomingMessage];
    answer.resume();
    return answer;
  };

  test.each([
    [200, 'GET', '/api/v1/ids', { authorization }],
    [200, 'GET', '/api/v1/ids?count=500', { authorization, 'accept-encoding': 'gzip' }],
    [200, 'HEAD', '/api/v1/ids', { authorization }],
    [200, 'POST', '/api/v1/id', { authorization }],
    [200, 'GET', '/docs', {}],
    [400, 'GET', '/api/v1/ids?count=0', { authorization }],
    [400, 'GET', '/api/v1/%zz', { authorization }],
    [401, 'GET', '/api/v1/ids', {}],
    [404, 'GET', '/nowhere', { authorization }],
    [405, 'PUT', '/api/v1/ids', { authorization }],
    [417, 'GET', '/api/v1/ids', { expect: 'miracles' }],
  ] as const)('%i %s %s', async (status, method, path, headers) => {
    const answer = await ask(method, path, headers);
    expect(answer.statusCode).toBe(status);
    expect(answer.headers).toMatchObject(own);
  });

  test('also one to what is no HTTP', async () => {
    const socket = connect({ port, host: '127.0.0.1' });
    socket.end('hello\r\n\r\n');
    const [, id, trace] = /\r\nx-request-id: (.*)\r\ntraceparent: (.*)\r\n/.exec(await text(socket)) ?? [];
    expect(id).toMatch(NEW_ID);
    expect(trace).toMatch(NEW_TRACE);
  });
});
