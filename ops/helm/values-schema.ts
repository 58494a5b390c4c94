import { VARIABLES } from '../../src/config/variables.ts';

type Schema = Readonly<Record<string, unknown>>;

/** Variables that the chart sets itself, so that pods differ where they must and agree with ports and volumes. */
const OWN = ['API_HOST', 'API_PORT', 'INDEX_DIR', 'INSTANCE_ID', 'OPS_HOST', 'OPS_PORT', 'WORKER_ID', 'WORKER_IP'];

/** An object with these keys and no others: a misspelled one is rejected. */
const object = (properties: Readonly<Record<string, Schema>>, required: readonly string[] = []): Schema => {
  return { type: 'object', additionalProperties: false, properties, ...(required.length > 0 ? { required } : {}) };
};
const listOf = (items: Schema): Schema => ({ type: 'array', items });
const oneOf = (...values: readonly string[]): Schema => ({ enum: values });
const atLeast = (minimum: number): Schema => ({ type: 'integer', minimum });

const text: Schema = { type: 'string' };
const flag: Schema = { type: 'boolean' };
const name: Schema = { type: 'string', minLength: 1 };
const port: Schema = { type: 'integer', minimum: 1, maximum: 65_535 };
/** Labels, annotations, selectors: texts under any name. */
const texts: Schema = { type: 'object', additionalProperties: text };
/** What Kubernetes itself checks. */
const anything: Schema = { type: 'object' };
const quantity: Schema = { type: ['string', 'integer'], pattern: '^[0-9]+([.][0-9]+)?(k|M|G|T|Ki|Mi|Gi|Ti)?$' };

const resources = object(
  { requests: anything, limits: { ...anything, required: ['memory'], properties: { memory: quantity } } },
  ['limits'],
);

const namesOf = (secret: boolean) =>
  Object.entries(VARIABLES)
    .filter(([variable, one]) => one.secret === secret && !OWN.includes(variable))
    .map(([variable, { meaning }]) => [variable, meaning] as const);

/** What YAML makes of a value; `true` for a variable that is 0 or 1. */
const typesOf = (variable: string): readonly string[] => {
  const { unit } = (VARIABLES as Readonly<Record<string, { readonly unit: string }>>)[variable] ?? { unit: '' };
  return ['string', 'integer', ...(unit === '0 or 1' ? ['boolean'] : [])];
};
const configNames: Readonly<Record<string, Schema>> = Object.fromEntries(
  namesOf(false).map(([variable, description]) => [variable, { type: typesOf(variable), description }]),
);
/** What several values have in common is written once. */
const shared = (definition: 'config' | 'files' | 'source'): Schema => ({ $ref: `#/definitions/${definition}` });
const REQUIRED = Object.entries(VARIABLES)
  .filter(([, { required }]) => required)
  .map(([variable]) => variable);

/** Beside a reference, draft 7 knows nothing but other parts of allOf. */
const fileNames = Object.fromEntries(
  namesOf(true).map(([variable, description]) => [variable, { allOf: [shared('source')], description }]),
);
const DEFINITIONS = {
  config: object(configNames),
  files: object(fileNames),
  source: {
    oneOf: [
      object({ secret: name, key: name }, ['secret', 'key']),
      object({ configMap: name, key: name }, ['configMap', 'key']),
    ],
  },
};

/** The thresholds of alerts that have a name in ops/prometheus/rules.yml. `helm --set` passes a fraction as text. */
const thresholds = object(
  Object.fromEntries(
    ['unansweredSeconds', 'answersSeconds', 'httpSeconds', 'refusedShare', 'deadLetters', 'lagRecords'].map((one) => {
      return [one, { type: ['number', 'string'], pattern: '^[0-9]{1,6}([.][0-9]+)?$', minimum: 0, maximum: 999_999 }];
    }),
  ),
);
const probe = object({ periodSeconds: atLeast(1), timeoutSeconds: atLeast(1), failureThreshold: atLeast(1) });
const peers = listOf(anything);
const user = object(
  {
    name,
    role: oneOf('worker', 'client', 'operator', 'admin'),
    authentication: oneOf('scram-sha-512', 'tls'),
    replyTopics: listOf(name),
  },
  ['name', 'role', 'authentication'],
);
const spread = object(
  { topologyKey: name, maxSkew: atLeast(1), whenUnsatisfiable: oneOf('ScheduleAnyway', 'DoNotSchedule') },
  ['topologyKey', 'maxSkew', 'whenUnsatisfiable'],
);

/** The JSON schema of the chart's values. */
export const VALUES_SCHEMA: Schema = {
  $schema: 'http://json-schema.org/draft-07/schema#',
  definitions: DEFINITIONS,
  ...object(
    {
      global: anything,
      image: object({
        repository: name,
        tag: text,
        digest: { type: 'string', pattern: '^(sha256:[0-9a-f]{64})?$' },
        pullPolicy: oneOf('Always', 'IfNotPresent', 'Never'),
      }),
      imagePullSecrets: listOf(object({ name }, ['name'])),
      nameOverride: text,
      fullnameOverride: text,
      replicas: atLeast(0),
      config: { allOf: [shared('config')], required: REQUIRED },
      files: shared('files'),
      env: listOf(anything),
      envFrom: listOf(anything),
      nodeOptions: text,
      heapPercent: { type: 'integer', minimum: 10, maximum: 90 },
      instancePrefix: { type: 'string', pattern: '^[A-Za-z0-9._-]{0,60}$' },
      listenAddress: name,
      resources,
      persistence: object({
        enabled: flag,
        size: quantity,
        storageClass: text,
        whenDeleted: oneOf('Delete', 'Retain'),
        whenScaled: oneOf('Delete', 'Retain'),
      }),
      api: object({
        enabled: flag,
        port,
        service: object({ type: oneOf('ClusterIP', 'NodePort', 'LoadBalancer'), port, annotations: texts }),
      }),
      ingress: object({
        enabled: flag,
        className: text,
        annotations: texts,
        hosts: listOf(name),
        tls: listOf(object({ secretName: name, hosts: listOf(name) }, ['secretName'])),
      }),
      httpRoute: object({ enabled: flag, annotations: texts, parentRefs: listOf(anything), hostnames: listOf(name) }),
      ops: object({ port }),
      probes: object({ startup: probe, readiness: probe, liveness: probe }),
      rollWaitsForCopies: flag,
      zoneLabel: name,
      minReadySeconds: atLeast(0),
      terminationGracePeriodSeconds: atLeast(1),
      updatePartition: atLeast(0),
      podDisruptionBudget: object({ enabled: flag, maxUnavailable: { type: ['integer', 'string'] } }),
      networkPolicy: object({
        enabled: flag,
        apiFrom: peers,
        opsFrom: peers,
        egressPorts: listOf(port),
        egressTo: peers,
      }),
      serviceAccount: object({ create: flag, name: text, annotations: texts }),
      podSecurityContext: anything,
      topologySpread: listOf(spread),
      nodeSelector: texts,
      tolerations: listOf(anything),
      affinity: anything,
      priorityClassName: text,
      podAnnotations: texts,
      podLabels: texts,
      commonLabels: texts,
      hostAliases: listOf(anything),
      lifecycle: anything,
      initContainers: listOf(anything),
      extraContainers: listOf(anything),
      extraVolumes: listOf(anything),
      extraVolumeMounts: listOf(anything),
      topicsJob: object({
        enabled: flag,
        init: flag,
        managed: flag,
        checkNamespace: flag,
        replyTopics: listOf(name),
        config: shared('config'),
        files: shared('files'),
        serviceAccountName: name,
        deadlineSeconds: atLeast(1),
        resources,
      }),
      monitoring: object({
        prometheusNamespace: name,
        serviceMonitor: object({ enabled: flag, interval: name, labels: texts }),
        rules: object({ enabled: flag, labels: texts, runbook: name, thresholds }),
        dashboard: object({ enabled: flag, labels: texts }),
      }),
      keda: object({
        enabled: flag,
        minReplicas: atLeast(1),
        maxReplicas: atLeast(0),
        lagThreshold: atLeast(1),
        pollingIntervalSeconds: atLeast(1),
        cooldownSeconds: atLeast(1),
        authenticationRef: text,
        metadata: texts,
      }),
      strimzi: object({
        enabled: flag,
        apiVersion: name,
        cluster: text,
        namespace: text,
        topics: flag,
        users: listOf(user),
      }),
    },
    ['config'],
  ),
};
