import { expect, test } from 'vitest';
import { compiledConsumer, expectServed, PackedProjects } from '../support/packed-projects.ts';

test('the packed client serves IDs as an ES module, in strict TypeScript, on the node of the machine', async ({
  annotate,
}) => {
  using projects = await PackedProjects.build();
  const service = await projects.projectWith(['@idalloc/client']);
  expect(projects.packed.map(({ name }) => name)).toContain('@idalloc/client');
  await expectServed(await compiledConsumer(service), annotate);
});
