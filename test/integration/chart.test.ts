import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { ALERTS, type Rule } from '../../ops/prometheus/rules.ts';
import { planTopics } from '../../src/adapters/kafka/topics/plan.ts';
import { rightsOf } from '../../src/adapters/kafka/topics/rights.ts';
import { loadWorkerConfig } from '../../src/config/config.ts';
import { type Manifest, NAMESPACE, only, RenderedChart, VALUES } from '../support/chart-render.ts';
import { KubernetesSchemas } from '../support/kubernetes-schemas.ts';

const PLAIN = 'plain-values.yaml';
const SECURED = 'secured-values.yaml';
const OPERATORS = 'operators-values.yaml';
const OPEN = 'open-values.yaml';

/** The first build of helm, on a machine that has much else to do. */
const BUILD_MS = 1_800_000;

let chart: RenderedChart;
let schemas: KubernetesSchemas;
beforeAll(async () => {
  schemas = await KubernetesSchemas.load();
  chart = await RenderedChart.pack();
}, BUILD_MS);
afterAll(() => chart?.[Symbol.dispose]());

interface Variable {
  readonly name: string;
  readonly value: string;
}
/** The variables with a value of the container of a pod, by name. */
const variables = (container: { readonly env: readonly Variable[] }) =>
  new Map(container.env.map(({ name, value }) => [name, value]));
const workerOf = (manifests: readonly Manifest[]) => only(manifests, 'StatefulSet').spec.template.spec;

describe.for(VALUES)('with %s', (values) => {
  test('helm finds nothing to complain about', async () => {
    expect(await chart.lint(values)).toContain('0 chart(s) failed');
  });

  test('each manifest fits the schema of its kind', async () => {
    const manifests = await chart.render(values);
    expect(manifests.length).toBeGreaterThan(5);
    expect(manifests.flatMap((manifest) => schemas.problemsOf(manifest))).toEqual([]);
  });

  test('every container runs without root, with a read-only root and limited memory, of which the heap takes half', async () => {
    const manifests = await chart.render(values);
    const pods = [workerOf(manifests), only(manifests, 'Job').spec.template.spec];
    for (const pod of pods) {
      expect(pod.automountServiceAccountToken).toBe(false);
      expect(pod.securityContext).toMatchObject({ runAsNonRoot: true, seccompProfile: { type: 'RuntimeDefault' } });
      const own = [...(pod.initContainers ?? []), ...pod.containers].filter(({ image }) => image !== 'busybox');
      expect(own).not.toEqual([]);
      for (const container of own) {
        expect(container.securityContext).toEqual({
          allowPrivilegeEscalation: false,
          readOnlyRootFilesystem: true,
          capabilities: { drop: ['ALL'] },
        });
        const [, amount = 0, unit] = /^(\d+)(Mi|Gi)$/.exec(container.resources.limits.memory) ?? [];
        const halfMib = (Number(amount) * (unit === 'Gi' ? 1_024 : 1)) / 2;
        expect(variables(container).get('NODE_OPTIONS')).toBe(
          `--max-old-space-size=${halfMib} --max-semi-space-size=16 --v8-pool-size=1`,
        );
      }
    }
  });

  test('a worker accepts the variables that its container gets', async () => {
    const { containers } = workerOf(await chart.render(values));
    const env = Object.fromEntries(
      [...variables(containers[0])].filter(([name, value]) => value !== undefined && !name.endsWith('_FILE')),
    );
    const { KAFKA_SASL_MECHANISM: _, KAFKA_SASL_USERNAME: __, ETCD_USERNAME: ___, INSTANCE_ID, ...plain } = env;
    expect(INSTANCE_ID).toMatch(/^[a-z-]*\$\(POD_NAMESPACE\)\.\$\(POD_NAME\)$/);
    expect(loadWorkerConfig(plain).warnings.filter((line) => !line.includes('TLS'))).toEqual([]);
  });
});

test('the schemas reject a field that Kubernetes does not know, and a value of the wrong type', async () => {
  const budget = only(await chart.render(PLAIN), 'PodDisruptionBudget');
  const wrong = { ...budget, spec: { ...budget.spec, maxUnavailble: 1 } };
  expect(schemas.problemsOf(wrong)).toEqual([expect.stringContaining('"maxUnavailble"')]);
  const monitor = only(await chart.render(OPERATORS), 'ServiceMonitor');
  expect(schemas.problemsOf({ ...monitor, spec: { ...monitor.spec, endpoints: { port: 'ops' } } })).toEqual([
    expect.stringContaining('/spec/endpoints: must be array'),
  ]);
});

test('a misspelt value is rejected by name', async () => {
  await expect(chart.render(PLAIN, 'config.KAFKA_BROKER=kafka:9092')).rejects.toThrow(
    "additional properties 'KAFKA_BROKER' not allowed",
  );
  await expect(chart.render(PLAIN, 'replica=2')).rejects.toThrow("additional properties 'replica' not allowed");
});

test('more workers than worker IDs are rejected, with the pool that the worker would have', async () => {
  await expect(chart.render(PLAIN, 'replicas=33')).rejects.toThrow("33 workers can't share the 32 worker IDs");
  await expect(chart.render(PLAIN, 'replicas=9', 'config.POOL_FIRST=24')).rejects.toThrow('the 8 worker IDs');
  const { spec } = only(await chart.render(PLAIN, 'replicas=8', 'config.POOL_FIRST=24'), 'StatefulSet');
  expect(spec.replicas).toBe(8);
});

test('each worker has a volume of its own, probes that wait for restores, and time to drain', async () => {
  const { spec } = only(await chart.render(PLAIN), 'StatefulSet');
  expect(spec.volumeClaimTemplates.map(({ metadata }: Manifest) => metadata.name)).toEqual(['index']);
  const pod = spec.template.spec;
  const [container] = pod.containers;
  expect(container.startupProbe.httpGet).toEqual({ path: '/healthz', port: 'ops' });
  expect(container.livenessProbe.httpGet).toEqual({ path: '/healthz', port: 'ops' });
  expect(container.readinessProbe.httpGet).toEqual({ path: '/readyz/copies', port: 'ops' });
  const served = only(await chart.render(PLAIN, 'rollWaitsForCopies=false'), 'StatefulSet').spec.template.spec;
  expect(served.containers[0].readinessProbe.httpGet).toEqual({ path: '/readyz', port: 'ops' });
  expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(2 * 10);
  const mount = container.volumeMounts.find(({ name }: { name: string }) => name === 'index');
  expect(variables(container).get('INDEX_DIR')).toContain(`${mount.mountPath}/`);
});

test('a worker learns its zone from the label of its pod, unless all have one by configuration', async () => {
  const zoneOf = async (...set: readonly string[]) => {
    const [{ env }] = workerOf(await chart.render(PLAIN, ...set)).containers;
    return env.filter(({ name }: Variable) => name === 'WORKER_ZONE');
  };
  const fieldPath = "metadata.labels['topology.kubernetes.io/zone']";
  expect(await zoneOf()).toEqual([{ name: 'WORKER_ZONE', valueFrom: { fieldRef: { fieldPath } } }]);
  expect(await zoneOf('config.WORKER_ZONE=east-1')).toEqual([{ name: 'WORKER_ZONE', value: 'east-1' }]);
});

test('secrets are files that other users cannot read, and none is a variable', async () => {
  const manifests = await chart.render(SECURED);
  const pod = workerOf(manifests);
  const { projected } = pod.volumes.find(({ name }: { name: string }) => name === 'files');
  expect(projected.defaultMode).toBe(0o440);
  const env = variables(pod.containers[0]);
  expect(env.get('KAFKA_SASL_PASSWORD_FILE')).toBe('/etc/idalloc/files/KAFKA_SASL_PASSWORD');
  expect(env.get('REQUEST_RETENTION_MS')).toBe('86400000');
  const names = [...env.keys()].filter((name) => name.endsWith('_FILE')).map((name) => name.replace('_FILE', ''));
  const paths = projected.sources.map((source: Record<string, { items: { path: string }[] }>) => {
    return Object.values(source)[0]?.items[0]?.path;
  });
  expect(paths.toSorted()).toEqual(names.toSorted());
  expect(JSON.stringify(manifests)).not.toContain('secretKeyRef');
});

test('the job creates topics as an admin, then checks topics and namespace, before the release', async () => {
  const job = only(await chart.render(SECURED), 'Job');
  expect(job.metadata.annotations).toMatchObject({ 'helm.sh/hook': 'pre-install,pre-upgrade' });
  const { initContainers, containers } = job.spec.template.spec;
  const commands = [...initContainers, ...containers];
  expect(commands.map(({ args }) => args.join(' '))).toEqual([
    'topics init --reply-topic id.replies.orders id.replies.billing',
    'topics check',
    'namespace show',
  ]);
  for (const command of commands) expect(variables(command).get('KAFKA_SASL_USERNAME')).toBe('id-admin');
  expect(JSON.stringify(job)).toContain('"kafka-admin"');
  expect(JSON.stringify(job)).not.toMatch(/"kafka-login"|API_T/);
});

test('the API has a Service of ready workers, and the ops port one of all, without the other port', async () => {
  const manifests = await chart.render(PLAIN);
  const [api, ops] = ['ids-idalloc-api', 'ids-idalloc-ops'].map((name) => only(manifests, 'Service', name).spec);
  expect(api.ports).toEqual([{ name: 'api', port: 8080, targetPort: 'api' }]);
  expect(api.publishNotReadyAddresses).toBeUndefined();
  expect(ops.ports).toEqual([{ name: 'ops', port: 9464, targetPort: 'ops' }]);
  expect(ops).toMatchObject({ clusterIP: 'None', publishNotReadyAddresses: true });
});

test('the network policy lets workers reach brokers, etcd and registry, and callers each port as configured', async () => {
  const { spec } = only(await chart.render(SECURED), 'NetworkPolicy');
  const ports = spec.egress.flatMap((rule: { ports: { port: number }[] }) => rule.ports.map(({ port }) => port));
  expect(new Set(ports)).toEqual(new Set([53, 9464, 9093, 9094, 9095, 2379, 443]));
  expect(spec.ingress.map(({ ports: [{ port }] }: { ports: [{ port: string }] }) => port)).toEqual(['api', 'ops']);
  const without = only(await chart.render(OPERATORS), 'NetworkPolicy').spec;
  expect(without.ingress.map(({ ports: [{ port }] }: { ports: [{ port: string }] }) => port)).toEqual(['ops']);
});

test('with a login to MSK by IAM, workers reach its credentials besides: by TLS, and at link-local addresses', async () => {
  const egressOf = async (...set: readonly string[]) =>
    only(await chart.render(PLAIN, ...set), 'NetworkPolicy').spec.egress;
  const before = await egressOf();
  const login = ['config.KAFKA_SASL_MECHANISM=aws-msk-iam', 'config.KAFKA_AWS_REGION=eu-central-1'];
  const [secure, local, ...none] = (await egressOf(...login)).slice(before.length);
  expect(secure).toEqual({ ports: [{ port: 443, protocol: 'TCP' }] });
  expect(local.ports).toEqual([{ port: 80, protocol: 'TCP' }]);
  const blocks = local.to.map(({ ipBlock }: { ipBlock: { cidr: string } }) => ipBlock.cidr);
  expect(blocks).toEqual(['169.254.170.23/32', '169.254.169.254/32', 'fd00:ec2::23/128', 'fd00:ec2::254/128']);
  expect(none).toEqual([]);
});

test('the job sends a managed Kafka only what it accepts, if told so', async () => {
  const { initContainers } = only(await chart.render(PLAIN, 'topicsJob.managed=true'), 'Job').spec.template.spec;
  expect(initContainers[0].args).toEqual(['topics', 'init', '--managed']);
});

test.for<[string, number, readonly string[]]>([
  ['worker IDs of the pool', 8, []],
  ['partitions', 6, ['config.REQUEST_PARTITIONS=6']],
  ['its own limit', 4, ['keda.maxReplicas=4']],
])('KEDA adds no worker beyond %s', async ([, most, set]) => {
  const manifests = await chart.render(OPERATORS, ...set);
  expect(only(manifests, 'ScaledObject').spec.maxReplicaCount).toBe(most);
  expect(only(manifests, 'StatefulSet').spec).not.toHaveProperty('replicas');
});

test.for<Readonly<Record<string, string>>>([
  { REQUEST_TOPIC: 'a.requests', REQUEST_RETENTION_MS: '3600000' },
  { API_REPLY_TOPIC: 'id.replies.http' },
])('Strimzi gets the topics of `topics init` and the rights of docs/reference/rights.md, with %o', async (env) => {
  const manifests = await chart.render(
    OPERATORS,
    ...Object.entries(env).map(([name, value]) => `config.${name}=${value}`),
  );
  const config = loadWorkerConfig({ ...env, KAFKA_BROKERS: 'k:1', ETCD_ENDPOINTS: 'http://e:1', DATACENTER_ID: '1' });
  const topics = manifests.filter(({ kind }) => kind === 'KafkaTopic').map(({ spec }) => spec);
  expect(topics).toEqual(
    planTopics(config.topics).map(({ name, partitions, configs }) => {
      return { topicName: name, partitions, replicas: 3, config: configs };
    }),
  );
  const options = { topics: config.topics, groupId: config.groupId };
  const replyTopics = ['id.replies.orders', 'id.replies.orders-2'];
  const users = [
    ['id-worker', rightsOf('worker', options)],
    ['id-admin', rightsOf('admin', options)],
    ['orders', rightsOf('client', { ...options, replyTopics })],
  ] as const;
  for (const [name, rights] of users) {
    expect(only(manifests, 'KafkaUser', name).spec.authorization.acls).toEqual(
      rights.map(({ resource, name, pattern, operations }) => {
        const place = { type: resource, name, patternType: pattern === 'prefixed' ? 'prefix' : pattern };
        return { resource: place, operations, host: '*' };
      }),
    );
  }
  // The operator creates the topics with the release, so the job can only check them afterwards.
  const job = only(manifests, 'Job');
  expect(job.metadata.annotations).toMatchObject({ 'helm.sh/hook': 'post-install,post-upgrade' });
  expect(job.spec.template.spec.initContainers.map(({ args }: { args: string[] }) => args.join(' '))).toEqual([
    'topics check',
  ]);
});

test('the links of the alerts lead to the runbook in the checkout, or where it is said to be', async () => {
  const links = async (...set: readonly string[]) => {
    const { groups } = only(await chart.render(OPERATORS, ...set), 'PrometheusRule').spec;
    return groups.flatMap(({ rules }: { rules: Rule[] }) =>
      rules.flatMap((rule) => rule.annotations?.runbook_url ?? []),
    );
  };
  expect(await links()).toEqual(ALERTS.map(({ annotations }) => annotations.runbook_url));
  const address = 'https://ids.example/operations/runbook.html';
  expect(await links(`monitoring.rules.runbook=${address}`)).toEqual(
    ALERTS.map(({ annotations }) => annotations.runbook_url.replace('docs/operations/runbook.md', address)),
  );
});

test('a release has a scrape job of its own, and its alerts about absence ask for that', async () => {
  const manifests = await chart.render(OPERATORS, 'fullnameOverride=numbers');
  const job = `${NAMESPACE}/numbers`;
  const [endpoint] = only(manifests, 'ServiceMonitor').spec.endpoints;
  expect(endpoint.relabelings).toEqual([{ targetLabel: 'job', replacement: job }]);
  const rules: Rule[] = only(manifests, 'PrometheusRule').spec.groups.flatMap(({ rules }: { rules: Rule[] }) => rules);
  const asking = rules.flatMap(({ alert, expr }) => (expr.includes(`job="${job}"`) ? [alert] : []));
  expect(asking.toSorted()).toEqual([
    'IdallocNoWorkerServes',
    'IdallocRestarts',
    'IdallocWorkerDown',
    'IdallocWorkersMissing',
  ]);
  expect(JSON.stringify(rules)).not.toContain('.*idalloc.*');
});

test('a threshold of an alert is the one of the values, and of the others that of the file', async () => {
  const rulesOf = async (...set: readonly string[]) => {
    const { groups } = only(await chart.render(OPERATORS, ...set), 'PrometheusRule').spec;
    const rules: Rule[] = groups.flatMap(({ rules }: { rules: Rule[] }) => rules);
    return rules.map(({ expr }) => expr);
  };
  const thresholds = ['lagRecords=500000', 'answersSeconds=0.25', 'refusedShare=0.33'];
  const [usual, changed] = [
    await rulesOf(),
    await rulesOf(...thresholds.map((one) => `monitoring.rules.thresholds.${one}`)),
  ];
  const differing = changed.filter((expr, at) => expr !== usual[at]);
  expect(differing.map((expr) => / > .*$/m.exec(expr)?.[0]).toSorted()).toEqual([' > 0.25', ' > 0.33', ' > 500000']);
});

test('what other operators need is there only behind its switch', async () => {
  const kinds = async (values: string) => new Set((await chart.render(values)).map(({ kind }) => kind));
  const extra = ['ServiceMonitor', 'PrometheusRule', 'ScaledObject', 'KafkaTopic', 'KafkaUser', 'ConfigMap'];
  const [without, all] = [await kinds(PLAIN), await kinds(OPERATORS)];
  expect(extra.filter((kind) => without.has(kind))).toEqual([]);
  expect(extra.filter((kind) => !all.has(kind))).toEqual([]);
});

test('what a platform adds is in the pod, and its labels are on each object', async () => {
  const manifests = await chart.render(OPEN);
  const pod = workerOf(manifests);
  expect(pod).toMatchObject({
    hostAliases: [{ hostnames: ['kafka'] }],
    initContainers: [{ name: 'before' }],
    containers: [{ name: 'worker', lifecycle: { preStop: { sleep: { seconds: 2 } } } }, { name: 'beside' }],
  });
  expect(pod.containers[0].envFrom).toEqual([{ configMapRef: { name: 'proxies' } }]);
  expect(pod.containers[0].volumeMounts).toContainEqual(expect.objectContaining({ mountPath: '/certificates' }));
  expect(pod.volumes).toContainEqual({ name: 'certificates', emptyDir: {} });
  expect(variables(pod.containers[0]).get('KAFKA_TLS')).toBe('1');
  const objects = manifests.filter(({ kind }) => kind !== 'Pod');
  expect(objects.filter(({ metadata }) => Reflect.get(metadata, 'labels').team !== 'platform')).toEqual([]);
});

test('an Ingress and an HTTPRoute lead to the API, and to nothing if there is none', async () => {
  const manifests = await chart.render(OPEN);
  const { rules } = only(manifests, 'Ingress').spec;
  expect(rules[0].http.paths[0].backend.service).toEqual({ name: 'ids-idalloc-api', port: { name: 'api' } });
  const route = only(manifests, 'HTTPRoute').spec;
  expect(route.rules[0].backendRefs).toEqual([{ name: 'ids-idalloc-api', port: 8080 }]);
  await expect(chart.render(OPEN, 'api.enabled=false')).rejects.toThrow('set api.enabled');
  await expect(chart.render(OPEN, 'httpRoute.parentRefs=null')).rejects.toThrow('name a gateway');
});

test('the network policy lets Prometheus in from its namespace, if it is to scrape', async () => {
  const peers = async (values: string) => only(await chart.render(values), 'NetworkPolicy').spec.ingress.at(-1).from;
  const selector = { matchLabels: { 'kubernetes.io/metadata.name': 'observability' } };
  expect(await peers(OPEN)).toEqual([{ podSelector: {} }, { namespaceSelector: selector }]);
  expect(await peers(PLAIN)).toEqual([{ podSelector: {} }]);
});

test('a grace that ends a worker which still drains is rejected', async () => {
  const short = ['terminationGracePeriodSeconds=20', 'config.DRAIN_TIMEOUT_MS=8000'];
  await expect(chart.render(PLAIN, ...short)).rejects.toThrow('it needs 23 s for SHUTDOWN_DELAY_MS');
  await chart.render(PLAIN, ...short, 'config.SHUTDOWN_DELAY_MS=2000');
  await expect(chart.render(PLAIN, ...short, 'config.SHUTDOWN_DELAY_MS=2001')).rejects.toThrow('it needs 21 s');
});

test('the job leaves etcd alone if it is told so, and is a whole job with one command', async () => {
  const { initContainers, containers } = only(await chart.render(OPEN), 'Job').spec.template.spec;
  expect(initContainers).toBeUndefined();
  expect(containers.map(({ args }: { args: string[] }) => args)).toEqual([['topics', 'check']]);
});

test('helm test asks each worker for its status, from a pod that no network policy of workers keeps in', async () => {
  const manifests = await chart.render(PLAIN);
  const pod = only(manifests, 'Pod');
  expect(pod.metadata.annotations).toMatchObject({ 'helm.sh/hook': 'test' });
  expect(pod.spec.containers[0].args).toEqual(['status', '--port', '9464', 'ids-idalloc-ops']);
  const { matchLabels } = only(manifests, 'NetworkPolicy').spec.podSelector;
  expect(Reflect.get(pod.metadata, 'labels')).not.toMatchObject(matchLabels);
});
