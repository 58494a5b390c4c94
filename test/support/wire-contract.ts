import { afterAll, beforeAll, describe } from 'vitest';
import { groupsContract } from './wire-contract/groups.ts';
import { linksContract } from './wire-contract/links.ts';
import { recordsContract } from './wire-contract/records.ts';
import { sessionsContract } from './wire-contract/sessions.ts';
import { WireStage, type WireSubject } from './wire-contract/stage.ts';
import { topicsContract } from './wire-contract/topics.ts';

/** The behaviour of brokers that the loops rely on; the suite runs against simulated and real brokers. */
export function wireContract(name: string, open: () => WireSubject | Promise<WireSubject>): void {
  describe(`the wire contract of ${name}`, () => {
    let stage: WireStage;
    const at = () => stage;

    beforeAll(async () => {
      stage = new WireStage(await open());
    });
    afterAll(() => stage.close());

    linksContract(at);
    topicsContract(at);
    recordsContract(at);
    sessionsContract(at);
    groupsContract(at);
  });
}
