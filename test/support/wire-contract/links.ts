import { describe, expect, it } from 'vitest';
import type { BrokerAddress, BrokerLink } from '../../../src/kafka/wire/port.ts';
import { faultFrom, type WireStage } from './stage.ts';

/** Nothing listens there, simulated or not. */
const NOWHERE: BrokerAddress = { host: '127.0.0.1', port: 1 };

export function linksContract(at: () => WireStage): void {
  const dial = (address: BrokerAddress, signal = new AbortController().signal): Promise<BrokerLink> =>
    at().subject.dialer.dial(address, signal);
  const seed = () => at().subject.seeds[0] ?? NOWHERE;

  describe('connections', () => {
    it('closing a connection ends it and its calls', async () => {
      const topic = await at().topic();
      const link = await dial(seed());
      const partitions = [{ topic, partition: 0, offset: 0, maxBytes: 1_000 }];
      const polling = faultFrom(
        link.call('fetch', { maxWaitMs: 20_000, maxBytes: 1_000, isolation: 'read_committed', partitions }),
      );
      const asking = faultFrom(link.call('metadata', { topics: [] }));
      link.close();
      expect([await polling, await asking]).toEqual(['CONNECTION_LOST', 'CONNECTION_LOST']);
      await link.ended;
      expect(await faultFrom(link.call('metadata', { topics: [] }))).toBe('CONNECTION_LOST');
      link.close();
    });

    it('an address where nothing listens is UNREACHABLE', async () => {
      expect(await faultFrom(dial(NOWHERE))).toBe('UNREACHABLE');
    });

    it('a cancelled dial rejects with CLOSED, before it starts and after', async () => {
      expect(await faultFrom(dial(seed(), AbortSignal.abort()))).toBe('CLOSED');
      const giveUp = new AbortController();
      const dialing = faultFrom(dial(seed(), giveUp.signal));
      giveUp.abort();
      expect(await dialing).toBe('CLOSED');
    });

    it('connections to the same broker are independent', async () => {
      const [one, other] = [await dial(seed()), await dial(seed())];
      one.close();
      await one.ended;
      expect((await other.call('metadata', { topics: [] })).brokers.length).toBeGreaterThan(0);
      other.close();
      await other.ended;
    });
  });
}
