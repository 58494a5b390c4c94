import { describe, expect, it } from 'vitest';
import { FAIR } from '../../support/fake-kafka/network.ts';
import { fetchOf, nameOf, produceTo, Stage } from './stage.ts';

async function linked() {
  const stage = new Stage();
  stage.kafka.cluster.createTopic('t');
  return { stage, network: stage.kafka.network, cluster: stage.kafka.cluster, link: await stage.link() };
}

describe('a connection to a simulated broker', () => {
  it('is refused by a broker that is down or unknown, and hangs at a frozen one', async () => {
    const { stage, cluster, network } = await linked();
    cluster.crash(1);
    expect(await nameOf(stage.link())).toBe('UNREACHABLE');
    const nowhere = stage.kafka.dialer().dial({ host: 'nowhere', port: 1 }, new AbortController().signal);
    expect(await nameOf(stage.outcome(nowhere))).toBe('UNREACHABLE');
    cluster.restart(1);
    for (const silence of [() => cluster.freeze(1), () => network.blackHoled.add(1)]) {
      silence();
      const stop = new AbortController();
      stage.runtime.schedule(5_000, () => stop.abort());
      expect(await nameOf(stage.link(1, stop.signal))).toBe('CLOSED');
      cluster.thaw(1);
    }
  });

  it('that loses a request carries no further ones; earlier ones are answered', async () => {
    const { stage, network, link, cluster } = await linked();
    const before = link.call('metadata', { topics: [] });
    network.script = (call, way) => (call === 'produce' && way === 'there' ? 'lost' : undefined);
    const lost = link.call('produce', produceTo('t', stage.batch('a')));
    const after = link.call('metadata', { topics: [] });
    await stage.outcome(before);
    await stage.pass(100_000);
    link.close();
    expect(await Promise.all([lost, after].map(nameOf))).toEqual(['CONNECTION_LOST', 'CONNECTION_LOST']);
    expect(cluster.partition('t', 0).log.end).toBe(0);
  });

  it('that loses an answer has delivered the request', async () => {
    const { stage, network, link, cluster } = await linked();
    network.script = (call, way) => (call === 'produce' && way === 'back' ? 'lost' : undefined);
    const unanswered = link.call('produce', produceTo('t', stage.batch('a')));
    await stage.pass(100);
    link.close();
    expect(await nameOf(unanswered)).toBe('CONNECTION_LOST');
    expect(cluster.partition('t', 0).log.end).toBe(1);
  });

  it('that was closed still delivers what was sent before', async () => {
    const { stage, network, link, cluster } = await linked();
    network.script = (call, way) => (call === 'produce' && way === 'there' ? 30_000 : undefined);
    const late = link.call('produce', produceTo('t', stage.batch('a')));
    link.close();
    expect(await nameOf(late)).toBe('CONNECTION_LOST');
    expect(cluster.partition('t', 0).log.end).toBe(0);
    await stage.pass(30_001);
    expect(cluster.partition('t', 0).log.end).toBe(1);
  });

  it('that is reset rejects pending calls and ends, as does one to a broker that stops', async () => {
    const { stage, network, link } = await linked();
    network.script = (call) => (call === 'produce' ? 'reset' : undefined);
    expect(await nameOf(stage.outcome(link.call('produce', produceTo('t', stage.batch('a')))))).toBe('CONNECTION_LOST');
    await link.ended;
    expect(await nameOf(link.call('metadata', { topics: [] }))).toBe('CONNECTION_LOST');
    const other = await stage.link();
    const held = other.call('fetch', { ...fetchOf({ topic: 't' }), maxWaitMs: 60_000 });
    await stage.pass(10);
    stage.kafka.cluster.crash(1);
    expect(await nameOf(stage.outcome(held))).toBe('CONNECTION_LOST');
    await other.ended;
  });

  it('serves calls in order, so that a waiting fetch blocks those after it', async () => {
    const { stage, link } = await linked();
    const order: string[] = [];
    const held = link.call('fetch', { ...fetchOf({ topic: 't' }), maxWaitMs: 500 }).then(() => order.push('fetch'));
    const behind = link.call('metadata', { topics: [] }).then(() => order.push('metadata'));
    await stage.outcome(Promise.all([held, behind]));
    expect(order).toEqual(['fetch', 'metadata']);
    expect(stage.runtime.nowMs).toBeGreaterThan(500);
  });

  it('may deliver a produce request twice', async () => {
    const { stage, network, link, cluster } = await linked();
    network.weather = { ...FAIR, doubled: 1 };
    expect((await stage.outcome(link.call('produce', produceTo('t', stage.batch('a'))))).baseOffset).toBe(0);
    await stage.pass(60_000);
    expect(cluster.partition('t', 0).log.end).toBe(2);
  });
});
