import { describe, expect, it } from 'vitest';
import { CALL_MS, only, type WireStage } from './stage.ts';

export function topicsContract(at: () => WireStage): void {
  describe('topics', () => {
    it('metadata has the brokers, the controller and the leader of each partition', async () => {
      const topic = await at().topic(3);
      const { clusterId, controllerId, brokers, topics } = await at().cluster.metadata([topic], CALL_MS);
      const nodes = brokers.map(({ nodeId }) => nodeId);
      expect(clusterId).not.toBe('');
      expect(nodes).toContain(controllerId);
      const { errorCode, name, partitions } = only(topics);
      expect([errorCode, name]).toEqual([undefined, topic]);
      expect(partitions.map(({ partition }) => partition)).toEqual([0, 1, 2]);
      for (const { leader, replicas, inSync } of partitions) {
        expect(nodes).toContain(leader);
        expect(replicas).toContain(leader);
        expect(inSync).toContain(leader);
      }
    });

    it('a missing or invalid topic does not affect others', async () => {
      const topic = await at().topic();
      const missing = at().name('missing');
      const { topics } = await at().cluster.metadata([missing, topic, 'not a name'], CALL_MS);
      const found = new Map(topics.map(({ name, errorCode }) => [name, errorCode]));
      expect(found.get(missing)).toBe('UNKNOWN_TOPIC_OR_PARTITION');
      expect(found.get('not a name')).toBe('INVALID_TOPIC_EXCEPTION');
      expect(found.get(topic)).toBeUndefined();
      expect((await at().cluster.metadata('all', CALL_MS)).topics.map(({ name }) => name)).not.toContain(missing);
    });

    it('metadata of all topics lists them all, and metadata of none lists none', async () => {
      const topic = await at().topic();
      expect((await at().cluster.metadata('all', CALL_MS)).topics.map(({ name }) => name)).toContain(topic);
      expect((await at().cluster.metadata([], CALL_MS)).topics).toEqual([]);
    });

    it('a topic is created with its settings, and only once', async () => {
      const topic = await at().topic(2, { 'cleanup.policy': 'compact', 'max.message.bytes': '12345' });
      const { controllerId } = await at().cluster.metadata([], CALL_MS);
      const missing = at().name('missing');
      const { topics } = await at().cluster.call(controllerId, 'control', CALL_MS, (link) =>
        link.call('describeConfigs', { topics: [topic, missing] }),
      );
      const found = new Map(topics.map((of) => [of.name, of]));
      const { configs, errorCode } = found.get(topic) ?? {};
      expect(errorCode).toBeUndefined();
      expect([configs?.get('cleanup.policy'), configs?.get('max.message.bytes')]).toEqual(['compact', '12345']);
      expect(configs?.has('retention.ms')).toBe(true);
      expect(found.get(missing)?.errorCode).toBe('UNKNOWN_TOPIC_OR_PARTITION');
      const again = { name: topic, partitions: 2, replicas: 1, configs: {} };
      const another = { ...again, name: at().name('another') };
      const answer = await at().cluster.call(controllerId, 'control', CALL_MS, (link) =>
        link.call('createTopics', { topics: [again, another], timeoutMs: CALL_MS }),
      );
      const faults = new Map(answer.topics.map(({ name, errorCode: of }) => [name, of]));
      expect([faults.get(topic), faults.get(another.name)]).toEqual(['TOPIC_ALREADY_EXISTS', undefined]);
    });

    it('a topic with more replicas than brokers is rejected, with a reason', async () => {
      const { controllerId, brokers } = await at().cluster.metadata([], CALL_MS);
      const topic = { name: at().name('many'), partitions: 1, replicas: brokers.length + 1, configs: {} };
      const answer = await at().cluster.call(controllerId, 'control', CALL_MS, (link) =>
        link.call('createTopics', { topics: [topic], timeoutMs: CALL_MS }),
      );
      const { errorCode, message } = only(answer.topics);
      expect(errorCode).toBe('INVALID_REPLICATION_FACTOR');
      expect(message).toBeTruthy();
    });

    it('without an authorizer a user may do everything with a topic, and no rights can be granted', async () => {
      const topic = await at().topic(2);
      const missing = at().name('missing');
      const { controllerId } = await at().cluster.metadata([], CALL_MS);
      const { topics } = await at().cluster.call(controllerId, 'control', CALL_MS, (link) =>
        link.call('authorizedOperations', { topics: [topic, missing] }),
      );
      const found = new Map(topics.map((of) => [of.name, of]));
      const all = ['Create', 'Describe', 'DescribeConfigs', 'Read', 'Write'];
      expect([...(found.get(topic)?.operations ?? [])].sort()).toEqual(all);
      expect(found.get(missing)?.errorCode).toBe('UNKNOWN_TOPIC_OR_PARTITION');
      const rule = { resource: 'topic', pattern: 'literal', name: topic, principal: 'User:x', host: '*' } as const;
      const rules = [{ ...rule, operation: 'Read' as const }];
      const answer = await at().cluster.call(controllerId, 'control', CALL_MS, (link) =>
        link.call('createAcls', { rules }),
      );
      expect(only(answer.rules)).toMatchObject({ errorCode: 'SECURITY_DISABLED', message: expect.any(String) });
    });
  });
}
