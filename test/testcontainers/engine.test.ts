import { expect, test, vi } from 'vitest';
import { IdAllocContainer, IdAllocEnvironment } from '../../src/testcontainers/index.ts';

vi.mock('testcontainers', async (original) => ({
  ...(await original<object>()),
  getContainerRuntimeClient: () => Promise.reject(new Error('Could not find a working container runtime strategy')),
}));

test.each([
  ['an environment', () => new IdAllocEnvironment().start()],
  ['a worker', () => new IdAllocContainer().withKafka('kafka:9092').withEtcd('etcd:2379').start()],
])('%s without a container engine fails with what to do, and with what else there is', async (_what, start) => {
  await expect(start()).rejects.toMatchObject({
    code: 'CONFIG_INVALID',
    message: expect.stringMatching(/^no container engine answers here: start Docker .*DOCKER_HOST.*MemoryWorkers/),
  });
});
