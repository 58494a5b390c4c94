import { afterAll, beforeAll, expect, test } from 'vitest';
import { NAMESPACE, only, RenderedChart, VALUES } from '../support/chart-render.ts';
import { KubernetesSchemas } from '../support/kubernetes-schemas.ts';
import { KubernetesServer } from '../support/kubernetes-server.ts';

/** The first build of the API server, on a machine that has much else to do. */
const BUILD_MS = 1_800_000;

let stack: AsyncDisposableStack;
let chart: RenderedChart;
let server: KubernetesServer;
beforeAll(async () => {
  stack = new AsyncDisposableStack();
  server = stack.use(await KubernetesServer.start());
  chart = stack.use(await RenderedChart.pack());
  for (const namespace of [NAMESPACE, 'kafka']) await server.createNamespace(namespace);
  await server.define((await KubernetesSchemas.load()).definitions);
}, BUILD_MS);
afterAll(() => stack?.disposeAsync());

test.for(VALUES)('a real API server would create everything that helm renders from %s', async (values) => {
  const manifests = await chart.render(values);
  const refusals = await Promise.all(manifests.map((manifest) => server.refusal(manifest, NAMESPACE)));
  expect(manifests.length).toBeGreaterThan(5);
  expect(refusals.filter((refusal) => refusal !== undefined)).toEqual([]);
});

test('it refuses what no schema shows: a mount without its volume, and an unknown field', async () => {
  const set = only(await chart.render('plain-values.yaml'), 'StatefulSet');
  const without = structuredClone(set);
  without.spec.template.spec.volumes = [];
  expect(await server.refusal(without, NAMESPACE)).toMatch(/volumeMounts.*Not found.*tmp/);
  const misspelt = { ...set, spec: { ...set.spec, replica: 3 } };
  expect(await server.refusal(misspelt, NAMESPACE)).toContain('unknown field');
});
