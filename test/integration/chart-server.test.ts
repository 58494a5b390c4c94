import { mkdtempDisposableSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { packChart } from '../../ops/helm/chart.ts';
import { acceptedDigest, decisiveFiles, digestOfChart, recordAccepted } from '../support/accepted-chart.ts';
import { NAMESPACE, only, RenderedChart, VALUES } from '../support/chart-render.ts';
import { blockCommands, blocksOf, readPage } from '../support/docs.ts';
import { KubernetesSchemas } from '../support/kubernetes-schemas.ts';
import { KubernetesServer } from '../support/kubernetes-server.ts';

// The API server takes two cores five minutes to build, and decides the same about the same chart. So it is built only
// for a chart that it has not accepted yet. Where CI is not set, what it accepts is recorded, to be committed with the
// change.

/** The first build of the API server, on a machine that has much else to do. */
const BUILD_MS = 1_800_000;
const digest = digestOfChart();

/** Its commands of kubectl need nodes that run pods; what `npm run chart` does, packs the chart here. */
const PAGE = readPage('docs/operations/kubernetes.md');

if (acceptedDigest() === digest) {
  test('a real API server has accepted all that is packed, as it is', async () => {
    using dir = mkdtempDisposableSync(join(tmpdir(), 'idalloc-chart-'));
    await packChart(dir.path);
    const packed = readdirSync(join(dir.path, 'idalloc'), { recursive: true, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map(({ parentPath, name }) => join(parentPath, name));
    const decisive = new Set([...decisiveFiles().values()].map((content) => content.toString('latin1')));
    expect(packed.length).toBeGreaterThan(10);
    expect(packed.filter((path) => !decisive.has(readFileSync(path, 'latin1')))).toEqual([]);
  });
} else {
  describe('a chart that no real API server has accepted yet', () => {
    let stack: AsyncDisposableStack;
    let chart: RenderedChart;
    let server: KubernetesServer;
    beforeAll(async () => {
      stack = new AsyncDisposableStack();
      // Helm first: both programs are built of much the same packages, which two builds at once would compile twice.
      chart = stack.use(await RenderedChart.pack());
      server = stack.use(await KubernetesServer.start());
      for (const namespace of [NAMESPACE, 'kafka']) await server.createNamespace(namespace);
      await server.define((await KubernetesSchemas.load()).definitions);
    }, BUILD_MS);
    // biome-ignore lint/correctness/noEmptyPattern: vitest accepts only a pattern here
    afterAll(async ({}, { tasks }) => {
      await stack?.disposeAsync();
      const isAccepted = tasks.every(({ result }) => result?.state === 'pass');
      if (isAccepted && process.env.CI === undefined) recordAccepted(digest);
    });

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

    test('helm installs, upgrades, rolls back and removes the release of the page', async () => {
      const values = blocksOf(PAGE).find(({ language }) => language === 'yaml');
      const helm = (command: string, ...more: readonly string[]) =>
        chart.command(command, values?.body.join('\n') ?? '', [...server.helmOptions, ...more]);
      // Nothing runs the job here, so helm would wait for it.
      const commands = blockCommands(PAGE).flatMap(({ command }) => (command.startsWith('helm ') ? [command] : []));
      expect(commands.map((command) => command.split(' ')[1])).toEqual(['install', 'upgrade']);
      for (const command of commands) expect(await helm(command, '--no-hooks')).toContain('STATUS: deployed');
      const path = `/apis/apps/v1/namespaces/${NAMESPACE}/statefulsets/ids-idalloc`;
      expect(await server.stored(path)).toMatchObject({ spec: { replicas: 3 } });
      expect(PAGE).toContain('`helm rollback ids --namespace ids`');
      await helm('helm rollback ids --namespace ids', '--no-hooks');
      await helm('helm uninstall ids --namespace ids', '--no-hooks');
      expect(await server.stored(path)).toBeUndefined();
    });
  });
}
