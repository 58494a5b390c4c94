import { describe, expect, test } from 'vitest';
import { type Config, loadFormKeys, loadKafkaConfig, loadWorkerConfig } from '../../src/config/config.ts';
import type { Environment } from '../../src/config/parse.ts';
import { describeVariables, VARIABLES } from '../../src/config/variables.ts';
import { DEFAULT_TIMING } from '../../src/core/reservation.ts';
import { IdallocError } from '../../src/errors.ts';

const KAFKA = { KAFKA_BROKERS: 'kafka:9092' };
const PLAIN_LOGIN = { KAFKA_SASL_MECHANISM: 'plain', KAFKA_SASL_USERNAME: 'u', KAFKA_SASL_PASSWORD: 'p' };
const WORKER = { ...KAFKA, ETCD_ENDPOINTS: 'http://etcd:2379', DATACENTER_ID: '4' };

const noFile = (path: string): string => {
  throw new Error(`no such file: ${path}`);
};

/** The lines of the error, each "NAME: problem". */
function errorsOf(env: Environment, readText = noFile): string[] {
  try {
    loadWorkerConfig(env, readText);
  } catch (error) {
    if (!(error instanceof IdallocError) || error.code !== 'CONFIG_INVALID') throw error;
    return error.message
      .split('\n')
      .slice(1)
      .map((line) => line.trim());
  }
  return [];
}

const namesOf = (faults: readonly string[]) => faults.map((fault) => fault.slice(0, fault.indexOf(':')));

describe('a worker with only the required variables', () => {
  const config = loadWorkerConfig(WORKER);

  test('gets the documented defaults', () => {
    expect(config).toMatchObject({
      kafka: { brokers: ['kafka:9092'], clientId: 'idalloc', tls: false },
      groupId: 'idalloc',
      idSpace: 'id',
      topics: {
        requests: 'id.requests',
        ledger: 'id.ledger',
        deadLetters: 'id.requests.dlt',
        witness: 'id.witness',
        replyPrefix: 'id.replies.',
        requestPartitions: 12,
        replicationFactor: 3,
        requestRetentionMs: 24 * 3_600_000,
        ledgerRetentionMs: 26 * 3_600_000,
        allowWeakLedger: false,
      },
      headers: {
        correlationId: 'kafka_correlationId',
        replyTopic: 'kafka_replyTopic',
        replyPartition: 'kafka_replyPartition',
      },
      etcd: { endpoints: ['http://etcd:2379'], prefix: '/keyspace' },
      datacenterId: 4,
      pool: { first: 0, last: 31 },
      timing: DEFAULT_TIMING,
      indexDir: './.idalloc/index',
      standbys: 1,
      acceptableLag: 100_000,
      copyLingerMs: 600_000,
      maxCount: 100_000,
      gateGraceMs: 10_000,
      drainTimeoutMs: 10_000,
      shutdownDelayMs: 0,
      commitIntervalMs: 500,
      api: { host: '127.0.0.1', port: 8080, maxConnections: 512, requestTimeoutMs: 5_000, keepAliveMs: 65_000 },
      ops: { host: '127.0.0.1', port: 9464 },
      logLevel: 'info',
      warnings: [],
      secretFiles: [],
    });
    expect(config.layout.name).toBe('default');
  });

  test('has no value for what is not configured', () => {
    const { workerId, workerIp, instanceId, kafka, etcd } = config;
    expect([workerId, workerIp, instanceId, kafka.sasl, etcd.auth]).toEqual(Array(5).fill(undefined));
  });

  test('has no HTTP API when it is turned off', () => {
    expect(loadWorkerConfig({ ...WORKER, API_PORT: 'off' }).api).toBeUndefined();
    expect(errorsOf({ ...WORKER, API_PORT: 'on' })).toEqual(["API_PORT: must be from 0 to 65535, or off, not 'on'"]);
  });

  test('has the configured instance ID, if Kafka allows it', () => {
    expect(loadWorkerConfig({ ...WORKER, INSTANCE_ID: 'ids.idalloc-0' }).instanceId).toBe('ids.idalloc-0');
    expect(errorsOf({ ...WORKER, INSTANCE_ID: 'ids/idalloc-0' })).toEqual([
      "INSTANCE_ID: must be 1 to 249 letters, digits, . _ -, not 'ids/idalloc-0'",
    ]);
  });

  test('has the configured number of standbys, or all', () => {
    const standbysOf = (value: string) => loadWorkerConfig({ ...WORKER, INDEX_STANDBYS: value }).standbys;
    expect([standbysOf('0'), standbysOf('3'), standbysOf('all')]).toEqual([0, 3, 'all']);
    expect(errorsOf({ ...WORKER, INDEX_STANDBYS: 'some' })).toEqual([
      "INDEX_STANDBYS: must be from 0 to 1023, or all, not 'some'",
    ]);
  });

  test('is deeply frozen', () => {
    const thaw = (value: unknown): string[] => {
      if (typeof value !== 'object' || value === null) return [];
      const own = Object.isFrozen(value) ? [] : [JSON.stringify(value, (_, part) => String(part))];
      return [...own, ...Object.values(value).flatMap(thaw)];
    };
    expect(thaw(config)).toEqual([]);
  });
});

describe('configuration errors', () => {
  test('are reported together, each with the name of its variable', () => {
    const faults = errorsOf({
      KAFKA_BROKERS: 'kafka',
      KAFKA_TLS: 'yes',
      ETCD_ENDPOINTS: 'etcd:2379',
      DATACENTER_ID: '32',
      WORKER_ID: '40',
      OPS_PORT: '65536',
      LEASE_TTL_SECONDS: '3e1',
    });
    expect(namesOf(faults)).toEqual([
      'KAFKA_BROKERS',
      'KAFKA_TLS',
      'ETCD_ENDPOINTS',
      'LEASE_TTL_SECONDS',
      'OPS_PORT',
      'WORKER_ID',
      'DATACENTER_ID',
    ]);
  });

  test('of an empty environment name the required variables', () => {
    expect(namesOf(errorsOf({}))).toEqual(['KAFKA_BROKERS', 'ETCD_ENDPOINTS', 'DATACENTER_ID']);
  });

  test.each(Object.entries(VARIABLES).filter(([, { unit }]) => unit !== 'text' && unit !== 'directory'))(
    'caused by an invalid value of %s are reported, and no others',
    (name) => {
      const faults = errorsOf({ ...WORKER, [name]: '\u0000nonsense' });
      expect(namesOf(faults)).toEqual([name]);
    },
  );

  test.each([
    ['a broker without a port', { KAFKA_BROKERS: 'a:1,b' }, 'KAFKA_BROKERS'],
    ['a broker at port 0', { KAFKA_BROKERS: 'a:0' }, 'KAFKA_BROKERS'],
    ['a broker at port 65536', { KAFKA_BROKERS: 'a:65536' }, 'KAFKA_BROKERS'],
    ['an IPv6 address without brackets', { KAFKA_BROKERS: 'a:1,::1:9092' }, 'KAFKA_BROKERS'],
    ['an endpoint that is no URL', { ETCD_ENDPOINTS: 'http://a:1,b:2' }, 'ETCD_ENDPOINTS'],
    ['an endpoint with a password', { ETCD_ENDPOINTS: 'http://u:p@a:1' }, 'ETCD_ENDPOINTS'],
    ['an endpoint with a path', { ETCD_ENDPOINTS: 'http://a:1/v3' }, 'ETCD_ENDPOINTS'],
    ['an endpoint of another scheme', { ETCD_ENDPOINTS: 'ftp://a:1' }, 'ETCD_ENDPOINTS'],
    ['a prefix with a trailing /', { ETCD_PREFIX: '/keyspace/' }, 'ETCD_PREFIX'],
    ['a datacenter past the layout', { DATACENTER_ID: '32' }, 'DATACENTER_ID'],
    ['a negative datacenter', { DATACENTER_ID: '-1' }, 'DATACENTER_ID'],
    ['a datacenter that the layout has no room for', { LAYOUT: 'sonyflake', DATACENTER_ID: '1' }, 'DATACENTER_ID'],
    ['a pool past the layout', { POOL_LAST: '32' }, 'POOL_LAST'],
    ['a pool that starts past the layout', { POOL_FIRST: '32' }, 'POOL_FIRST'],
    ['a pool whose first ID is above its last', { POOL_FIRST: '9', POOL_LAST: '8' }, 'POOL_LAST'],
    ['a pool of 1,025', { LAYOUT: 'sonyflake', DATACENTER_ID: '', POOL_LAST: '1024' }, 'POOL_LAST'],
    ['a worker ID outside the pool', { POOL_FIRST: '3', WORKER_ID: '2' }, 'WORKER_ID'],
    ['a layout without an epoch', { LAYOUT: 'baidu', DATACENTER_ID: '' }, 'LAYOUT_EPOCH_MS'],
    [
      'a batch larger than the layout allocates in a second',
      { LAYOUT: 'sonyflake', DATACENTER_ID: '', MAX_COUNT: '25601' },
      'MAX_COUNT',
    ],
    [
      'a ledger whose retention is 1 ms too short for its requests',
      { LEDGER_RETENTION_MS: '93599999' },
      'LEDGER_RETENTION_MS',
    ],
    ['requests kept forever with a ledger that expires', { REQUEST_RETENTION_MS: '-1' }, 'LEDGER_RETENTION_MS'],
    ['two topics of one name', { LEDGER_TOPIC: 'id.requests' }, 'LEDGER_TOPIC'],
    ['the ledger where replies may go', { LEDGER_TOPIC: 'id.replies.x' }, 'LEDGER_TOPIC'],
    ["the ledger in NestJS's reply topic", { LEDGER_TOPIC: 'id.requests.reply' }, 'LEDGER_TOPIC'],
    ['a reply prefix that covers the witness topic', { REPLY_TOPIC_PREFIX: 'id.w' }, 'ID_SPACE'],
    ['a witness topic that is not that of the ID space', { WITNESS_TOPIC: 'id.witness.2' }, 'WITNESS_TOPIC'],
    ['replies for HTTP that no worker sends', { API_REPLY_TOPIC: 'replies.http' }, 'API_REPLY_TOPIC'],
    ['replies for HTTP on the topic of a command', { API_REPLY_TOPIC: 'id.replies.cli' }, 'API_REPLY_TOPIC'],
    ['two headers of one name', { REPLY_TOPIC_HEADER: 'kafka_correlationId' }, 'REPLY_TOPIC_HEADER'],
    ['a header that means the count already', { REPLY_TOPIC_HEADER: 'idalloc-count' }, 'REPLY_TOPIC_HEADER'],
    ['a header of replies', { CORRELATION_ID_HEADER: 'idalloc-retry-after-ms' }, 'CORRELATION_ID_HEADER'],
    [
      'a mechanism without a username',
      { KAFKA_SASL_MECHANISM: 'plain', KAFKA_SASL_PASSWORD: 'p' },
      'KAFKA_SASL_USERNAME',
    ],
    [
      'a mechanism without a password',
      { KAFKA_SASL_MECHANISM: 'plain', KAFKA_SASL_USERNAME: 'u' },
      'KAFKA_SASL_PASSWORD',
    ],
    [
      'a token endpoint for another login',
      { ...PLAIN_LOGIN, KAFKA_OAUTH_TOKEN_URL: 'https://login/token' },
      'KAFKA_OAUTH_TOKEN_URL',
    ],
    [
      'a login by token without a token endpoint',
      { KAFKA_SASL_MECHANISM: 'oauthbearer', KAFKA_OAUTH_CLIENT_ID: 'c', KAFKA_OAUTH_CLIENT_SECRET: 's' },
      'KAFKA_OAUTH_TOKEN_URL',
    ],
    ['a login to MSK without a region', { KAFKA_SASL_MECHANISM: 'aws-msk-iam', KAFKA_TLS: '1' }, 'KAFKA_AWS_REGION'],
    [
      'a login to MSK without TLS',
      { KAFKA_SASL_MECHANISM: 'aws-msk-iam', KAFKA_AWS_REGION: 'eu-central-1' },
      'KAFKA_TLS',
    ],
    ['a login without a mechanism', { KAFKA_SASL_USERNAME: 'u', KAFKA_SASL_PASSWORD: 'p' }, 'KAFKA_SASL_MECHANISM'],
    ['a guarantee of a setting that differs by topic', { TOPIC_GUARANTEES: 'retention.ms=1' }, 'TOPIC_GUARANTEES'],
    ['a guarantee without a value', { TOPIC_GUARANTEES: 'min.insync.replicas' }, 'TOPIC_GUARANTEES'],
    ['an etcd user without a password', { ETCD_USERNAME: 'u' }, 'ETCD_PASSWORD'],
    ['an etcd password without a user', { ETCD_PASSWORD: 'p' }, 'ETCD_USERNAME'],
  ])('are reported for %s', (_, env, name) => {
    expect(namesOf(errorsOf({ ...WORKER, ...env }))).toEqual([name]);
  });

  test.each([
    [
      { LEASE_TTL_SECONDS: '5', ETCD_REFUSE_AFTER_MS: '15000', RESERVATION_MS: '25000' },
      [
        'ETCD_REFUSE_AFTER_MS: must be below LEASE_TTL_SECONDS (5 s), not 15000 ms',
        'RESERVATION_MS: must be at most LEASE_TTL_SECONDS (5 s) minus LEASE_MARGIN_MS (833 ms), not 25000 ms',
      ],
    ],
    [
      { LEASE_HEARTBEAT_MS: '15000' },
      [
        'LEASE_HEARTBEAT_MS: must be below ETCD_REFUSE_AFTER_MS (15000 ms), not 15000 ms',
        'RESERVATION_MS: must be at least LEASE_HEARTBEAT_MS (15000 ms) plus ETCD_REFUSE_AFTER_MS (15000 ms), not 25000 ms',
      ],
    ],
    [
      { LEASE_TTL_SECONDS: '60', LEASE_MARGIN_MS: '10001' },
      ['RESERVATION_MS: must be at most 35000 ms minus LEASE_MARGIN_MS (10001 ms), not 25000 ms'],
    ],
    [
      { LEASE_MARGIN_MS: '5001' },
      ['RESERVATION_MS: must be at most LEASE_TTL_SECONDS (30 s) minus LEASE_MARGIN_MS (5001 ms), not 25000 ms'],
    ],
  ])('in the timing of the lease name the variables of the rule, in their units: %o', (env, expected) => {
    expect(errorsOf({ ...WORKER, ...env })).toEqual(expected);
  });

  test('are none for a lease of five seconds with a margin of one', () => {
    const env = {
      LEASE_TTL_SECONDS: '5',
      LEASE_HEARTBEAT_MS: '1000',
      ETCD_REFUSE_AFTER_MS: '3000',
      RESERVATION_MS: '4000',
      LEASE_MARGIN_MS: '1000',
    };
    const timing = { ttlMs: 5_000, heartbeatMs: 1_000, refuseAfterMs: 3_000, reserveMs: 4_000, marginMs: 1_000 };
    expect(loadWorkerConfig({ ...WORKER, ...env }).timing).toEqual(timing);
  });

  test.each([
    [2, { heartbeatMs: 666, refuseAfterMs: 1_000, reserveMs: 1_666, marginMs: 333 }],
    [5, { heartbeatMs: 1_666, refuseAfterMs: 2_500, reserveMs: 4_166, marginMs: 833 }],
    [30, { heartbeatMs: 10_000, refuseAfterMs: 15_000, reserveMs: 25_000, marginMs: 5_000 }],
    [600, { heartbeatMs: 10_000, refuseAfterMs: 15_000, reserveMs: 25_000, marginMs: 5_000 }],
  ])('are none for a lease of %i s whose other times follow from it', (seconds, times) => {
    const { timing } = loadWorkerConfig({ ...WORKER, LEASE_TTL_SECONDS: String(seconds) });
    expect(timing).toEqual({ ttlMs: seconds * 1_000, ...times });
  });

  test('are none for a session of a second, and one for less', () => {
    expect(loadWorkerConfig({ ...WORKER, KAFKA_SESSION_TIMEOUT_MS: '1000' }).groupSessionMs).toBe(1_000);
    expect(errorsOf({ ...WORKER, KAFKA_SESSION_TIMEOUT_MS: '999' })).toEqual([
      "KAFKA_SESSION_TIMEOUT_MS: must be from 1000 to 300000, not '999'",
    ]);
  });

  test('in one variable cause none in those that depend on it', () => {
    const env = { ...WORKER, LAYOUT: 'nope', DATACENTER_ID: '77', WORKER_ID: '500', MAX_COUNT: '5' };
    expect(namesOf(errorsOf(env))).toEqual(['LAYOUT']);
    expect(namesOf(errorsOf({ ...WORKER, LEASE_TTL_SECONDS: 'x', LEASE_HEARTBEAT_MS: '600000' }))).toEqual([
      'LEASE_TTL_SECONDS',
    ]);
  });
});

/** Wants a datacenter below 8, and has 64 workers. */
const CUSTOM = {
  LAYOUT: 'custom',
  LAYOUT_FIELDS: 'timestamp:41,datacenter:3,worker:6,sequence:13',
  LAYOUT_EPOCH_MS: '1767225600000',
};

describe('configuration errors of a custom layout', () => {
  test.each([
    ['no fields', { LAYOUT_FIELDS: '' }, 'LAYOUT_FIELDS'],
    ['no epoch', { LAYOUT_EPOCH_MS: '' }, 'LAYOUT_EPOCH_MS'],
    ['malformed fields', { LAYOUT_FIELDS: 'timestamp:41;worker:6' }, 'LAYOUT_FIELDS'],
    ['fields that make no layout', { LAYOUT_FIELDS: 'timestamp:41,sequence:12' }, 'LAYOUT_FIELDS'],
    ['a tick of no time', { LAYOUT_TICK_MS: '0' }, 'LAYOUT_TICK_MS'],
    ['a start past the sequence', { LAYOUT_SEQUENCE_START_BELOW: '8193' }, 'LAYOUT_SEQUENCE_START_BELOW'],
    [
      'a reservation that may end before it is raised, for its ticks',
      { LAYOUT_TICK_MS: '1000', LEASE_HEARTBEAT_MS: '300', ETCD_REFUSE_AFTER_MS: '400', RESERVATION_MS: '1299' },
      'RESERVATION_MS',
    ],
    ['a datacenter past its field', { DATACENTER_ID: '8' }, 'DATACENTER_ID'],
    ['a pool past its field', { POOL_LAST: '64' }, 'POOL_LAST'],
    [
      'a batch of more IDs than the layout has in a second',
      { LAYOUT_FIELDS: 'timestamp:41,datacenter:3,worker:6,sequence:3', MAX_COUNT: '8001' },
      'MAX_COUNT',
    ],
  ])('are reported for %s', (_, env, name) => {
    expect(namesOf(errorsOf({ ...WORKER, ...CUSTOM, ...env }))).toEqual([name]);
  });

  test('are reported together with those of other variables', () => {
    const env = {
      LAYOUT: 'custom',
      LAYOUT_FIELDS: 'worker:6,timestamp:41,sequence:13',
      LAYOUT_TICK_MS: 'x',
      OPS_PORT: 'x',
    };
    expect(namesOf(errorsOf({ ...WORKER, ...env })).sort()).toEqual([
      'LAYOUT_EPOCH_MS',
      'LAYOUT_FIELDS',
      'LAYOUT_TICK_MS',
      'OPS_PORT',
    ]);
  });

  test('name the reason why the timestamp must come first', () => {
    const [fault] = errorsOf({ ...WORKER, ...CUSTOM, LAYOUT_FIELDS: 'datacenter:3,timestamp:41,worker:6,sequence:13' });
    expect(fault).toMatch(/^LAYOUT_FIELDS: must begin with the timestamp: only .* rise with time$/);
  });

  test('are its variables beside a layout by name', () => {
    const env = { LAYOUT_FIELDS: CUSTOM.LAYOUT_FIELDS, LAYOUT_TICK_MS: '1', LAYOUT_SEQUENCE_START_BELOW: '1' };
    expect(namesOf(errorsOf({ ...WORKER, ...env }))).toEqual(Object.keys(env));
    expect(errorsOf({ ...WORKER, ...env })[0]).toContain("for layout 'custom' only");
  });
});

describe('a layout of a chosen epoch', () => {
  const at = (nowMs: number, env = {}) => loadWorkerConfig({ ...WORKER, ...CUSTOM, ...env }, () => '', nowMs);
  const BEGIN = 1_767_225_600_000;
  const END = BEGIN + 2 ** 41;

  test.each([
    ['before it begins', BEGIN - 1],
    ['when it has ended', END],
  ])('is a fault %s', (_, nowMs) => {
    expect(() => at(nowMs)).toThrow(/LAYOUT_EPOCH_MS: /);
  });

  test('causes a warning only in its last year', () => {
    expect(at(END - 1).warnings).toEqual([expect.stringContaining('2095-09-07')]);
    expect([at(BEGIN).warnings, at(END - 370 * 86_400_000).warnings]).toEqual([[], []]);
  });

  test('is not checked for a published epoch, nor without the current time', () => {
    expect(() => loadWorkerConfig(WORKER, () => '', 0)).not.toThrow();
    expect(() => loadWorkerConfig({ ...WORKER, ...CUSTOM, LAYOUT_EPOCH_MS: '9000000000000' })).not.toThrow();
  });
});

describe('values', () => {
  test('what the Kafka service guarantees is one record, of none by default', () => {
    const text = 'min.insync.replicas=2, unclean.leader.election.enable=false';
    const { topics } = loadWorkerConfig({ ...WORKER, TOPIC_GUARANTEES: text });
    expect(topics.guarantees).toEqual({ 'min.insync.replicas': '2', 'unclean.leader.election.enable': 'false' });
    expect(loadWorkerConfig(WORKER).topics.guarantees).toBeUndefined();
  });

  test('an empty variable counts as not set', () => {
    expect(loadWorkerConfig({ ...WORKER, KAFKA_GROUP_ID: '', WORKER_ID: '' })).toEqual(loadWorkerConfig(WORKER));
  });

  test('a layout without a datacenter needs none', () => {
    const config = loadWorkerConfig({ ...WORKER, DATACENTER_ID: '', LAYOUT: 'sonyflake' });
    expect(config.datacenterId).toBe(0);
    expect(config.maxCount).toBe(25_600);
  });

  test('a layout with more worker IDs still gets a pool of 32', () => {
    expect(loadWorkerConfig({ ...WORKER, DATACENTER_ID: '', LAYOUT: 'sonyflake' }).pool).toEqual({
      first: 0,
      last: 31,
    });
  });

  test('an epoch replaces that of the layout', () => {
    const config = loadWorkerConfig({
      ...WORKER,
      LAYOUT: 'baidu',
      DATACENTER_ID: '',
      LAYOUT_EPOCH_MS: '1767225600000',
    });
    expect(config.layout.epochMs).toBe(1_767_225_600_000);
  });

  test('a custom layout is made of its variables', () => {
    const config = loadWorkerConfig({ ...WORKER, ...CUSTOM, LAYOUT_TICK_MS: '10', LAYOUT_SEQUENCE_START_BELOW: '3' });
    expect(config.layout).toMatchObject({
      name: 'custom',
      tickMs: 10,
      epochMs: 1_767_225_600_000,
      sequenceStartBelow: 3,
    });
    expect(config.layout.fields.map(({ bits }) => bits)).toEqual([41, 3, 6, 13]);
    expect(config.pool).toEqual({ first: 0, last: 31 });
  });

  test('a ledger without a retention limit fits requests without one', () => {
    const config = loadWorkerConfig({ ...WORKER, REQUEST_RETENTION_MS: '-1', LEDGER_RETENTION_MS: '-1' });
    expect(config.topics).toMatchObject({ requestRetentionMs: -1, ledgerRetentionMs: -1 });
  });

  test('the ledger must be kept longer than its requests, and without a limit when they are', () => {
    const errorFor = (env: Record<string, string>) => errorsOf({ ...WORKER, ...env });
    expect(errorFor({ REQUEST_RETENTION_MS: '-1' })).toEqual([
      'LEDGER_RETENTION_MS: must be -1 (no limit) when REQUEST_RETENTION_MS is -1, not 93600000',
    ]);
    expect(errorFor({ LEDGER_RETENTION_MS: '93599999' })).toEqual([
      'LEDGER_RETENTION_MS: must be at least 93600000, or -1 for no limit, when REQUEST_RETENTION_MS is 86400000, not 93599999',
    ]);
  });

  test('brokers may have IPv6 addresses, in brackets, as endpoints may', () => {
    const env = { KAFKA_BROKERS: '[2001:db8::1]:9092,kafka:9092', ETCD_ENDPOINTS: 'http://[::1]:2379' };
    const { kafka, etcd } = loadWorkerConfig({ ...WORKER, ...env });
    expect(kafka.brokers).toEqual(['[2001:db8::1]:9092', 'kafka:9092']);
    expect(etcd.endpoints).toEqual(['http://[::1]:2379']);
    expect(errorsOf({ ...WORKER, KAFKA_BROKERS: '::1:9092' })).toEqual([
      "KAFKA_BROKERS: must be host:port, with an IPv6 address in brackets as in [::1]:9092, separated by commas, not '::1:9092'",
    ]);
  });

  test('lists may have spaces around their commas', () => {
    expect(loadWorkerConfig({ ...WORKER, KAFKA_BROKERS: 'a:1, b:2' }).kafka.brokers).toEqual(['a:1', 'b:2']);
  });
});

describe('TLS', () => {
  const pem = '-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----';
  const secure = { ...WORKER, ETCD_ENDPOINTS: 'https://e:2379' };

  test('takes certificates from files', () => {
    const files = { KAFKA_CA_FILE: '/k', ETCD_CA_FILE: '/e', ETCD_CERT_FILE: '/c', ETCD_KEY_FILE: '/p' };
    const config = loadWorkerConfig({ ...secure, ...files, KAFKA_TLS: '1' }, (path) => `${pem}${path}`);
    const { ca, clientCertificate } = config.etcd.tls ?? {};
    expect([config.kafka.ca, ca, clientCertificate?.cert, clientCertificate?.key].map((secret) => secret?.())).toEqual(
      ['/k', '/e', '/c', '/p'].map((path) => `${pem}${path}`),
    );
  });

  test.each([
    ['an authority without TLS to Kafka', { KAFKA_CA: pem }, ['KAFKA_TLS']],
    ['a certificate for Kafka without its key', { KAFKA_TLS: '1', KAFKA_CERT: pem }, ['KAFKA_KEY']],
    ['a key for Kafka without its certificate', { KAFKA_TLS: '1', KAFKA_KEY: pem }, ['KAFKA_CERT']],
    ['a certificate without TLS to Kafka', { KAFKA_CERT: pem, KAFKA_KEY: pem }, ['KAFKA_TLS']],
    ['a path in place of PEM', { ETCD_CA: '/etc/ca.pem' }, ['ETCD_CA']],
    ['a certificate without its key', { ETCD_CERT: pem }, ['ETCD_KEY']],
    ['a key without its certificate', { ETCD_KEY: pem }, ['ETCD_CERT']],
    ['an authority for a plain endpoint', { ETCD_CA: pem, ETCD_ENDPOINTS: 'http://e:1' }, ['ETCD_ENDPOINTS']],
  ])('refuses %s', (_, env, names) => {
    expect(namesOf(errorsOf({ ...secure, ...env }))).toEqual(names);
  });
});

const passwordOf = ({ kafka: { sasl } }: Config) =>
  sasl !== undefined && 'password' in sasl ? sasl.password() : undefined;

describe('secrets', () => {
  const login = { ...WORKER, KAFKA_SASL_MECHANISM: 'plain', KAFKA_SASL_USERNAME: 'u' };

  test('come from a file, without its trailing newline', () => {
    const env = { ...login, KAFKA_SASL_PASSWORD_FILE: '/run/secrets/kafka' };
    const read = (path: string) => (path === '/run/secrets/kafka' ? 'p w\n\n' : noFile(path));
    expect(passwordOf(loadWorkerConfig(env, read))).toBe('p w\n');
  });

  test('set both ways are an error', () => {
    const env = { ...login, KAFKA_SASL_PASSWORD: 'a', KAFKA_SASL_PASSWORD_FILE: '/f' };
    expect(namesOf(errorsOf(env, () => 'b'))).toEqual(['KAFKA_SASL_PASSWORD']);
  });

  test('in an unreadable or empty file are one error', () => {
    const env = { ...login, KAFKA_SASL_PASSWORD_FILE: '/f' };
    expect(namesOf(errorsOf(env))).toEqual(['KAFKA_SASL_PASSWORD_FILE']);
    expect(namesOf(errorsOf(env, () => '\n'))).toEqual(['KAFKA_SASL_PASSWORD_FILE']);
  });

  test('in a file are read again for each use, and the last valid one is kept', () => {
    let content: string | undefined = 'first\n';
    const read = (path: string) => content ?? noFile(path);
    const config = loadWorkerConfig({ ...login, KAFKA_SASL_PASSWORD_FILE: '/f' }, read);
    const uses = [];
    const problems = [];
    for (content of ['second\n', '\n', undefined, 'x'.repeat(5_000), 'third']) {
      uses.push(passwordOf(config));
      problems.push(config.secretFiles[0]?.problem);
    }
    expect(uses).toEqual(['second', 'second', 'second', 'second', 'third']);
    expect(problems).toEqual([
      undefined,
      'is empty',
      expect.stringMatching(/^cannot be read: /),
      'is longer than 4096',
      undefined,
    ]);
  });

  test('appear in no message', () => {
    const secret = 's3cret'.repeat(1_000);
    const faults = errorsOf({ ...login, KAFKA_SASL_PASSWORD: secret });
    expect(namesOf(faults)).toEqual(['KAFKA_SASL_PASSWORD']);
    expect(faults.join()).not.toContain('s3cret');
  });
});

describe('a login in a rejected value', () => {
  test.each([
    ['ETCD_ENDPOINTS', 'http://root:s3cret@etcd:2379'],
    ['ETCD_ENDPOINTS', 'http://a:2379,http://root:s3cret/@p@etcd:2379'],
    ['ETCD_ENDPOINTS', 'root:s3cret@etcd:2379'],
    ['SCHEMA_REGISTRY_URL', 'http://me:s3cret@registry:8081'],
    ['SCHEMA_REGISTRY_URL', 'http://registry:8081?key=s3cret'],
    ['SCHEMA_REGISTRY_URL', `http://me:s3cret${'x'.repeat(200)}@registry:8081`],
    ['KAFKA_BROKERS', 'me:s3cret@kafka:9092'],
  ])('%s does not show the password of %s', (name, value) => {
    const faults = errorsOf({ ...WORKER, [name]: value });
    expect(namesOf(faults)).toEqual([name]);
    expect(faults.join()).not.toMatch(/s3cret|root|me:/);
  });

  test('the rest is shown', () => {
    expect(errorsOf({ ...WORKER, ETCD_ENDPOINTS: 'http://root:s3cret@etcd:2379/x' }).join()).toContain(
      "not '…@etcd:2379/x'",
    );
    expect(errorsOf({ ...WORKER, ETCD_ENDPOINTS: 'etcd:2379' }).join()).toContain("not 'etcd:2379'");
  });
});

describe('misspelled variables', () => {
  test.each([
    ['KAFKA_BROKER', 'KAFKA_BROKERS'],
    ['LEASE_TTL', 'LEASE_TTL_SECONDS'],
    ['ETCD_ENDPOINT', 'ETCD_ENDPOINTS'],
    ['DATACENTRE_ID', 'DATACENTER_ID'],
    ['ETCD_PASSWORD_FIEL', 'ETCD_PASSWORD_FILE'],
  ])('%s is warned about as %s', (name, meant) => {
    expect(loadWorkerConfig({ ...WORKER, [name]: '1' }).warnings).toEqual([
      `${name} is ignored: did you mean ${meant}?`,
    ]);
  });

  test.each([
    'KAFKA_TRUSTSTORE',
    'KAFKA_TRUSTSTORE_FILE',
    'ETCD_CLUSTER',
    'API_CORS_ORIGINS',
    'OPS_BEARER',
    'INDEX_PATH',
  ])('%s, which begins like our variables but does not exist, is warned about', (name) => {
    expect(loadWorkerConfig({ ...WORKER, [name]: '1' }).warnings).toEqual([
      `${name} is ignored: idalloc has no such variable`,
    ]);
  });

  test('variables of the platform cause no warning', () => {
    const env = {
      KAFKA_PORT: '1',
      ETCD_SERVICE_HOST: 'x',
      KAFKA_HEAP_OPTS: 'x',
      KAFKA_HOME: '/opt/kafka',
      KAFKA_PORT_9092_TCP_ADDR: '10.0.0.1',
      KAFKA_SERVICE_PORT_CLIENT: '9092',
      PATH: '/',
      HOSTNAME: 'x',
      LC_ALL: 'C',
    };
    expect(loadWorkerConfig({ ...WORKER, ...env }).warnings).toEqual([]);
  });
});

describe('the commands that need Kafka only', () => {
  test("do not check the worker's variables", () => {
    expect(loadKafkaConfig({ ...KAFKA, DATACENTER_ID: 'x', ETCD_ENDPOINTS: 'x' }).kafka.brokers).toEqual([
      'kafka:9092',
    ]);
  });

  test('check their own variables', () => {
    expect(() => loadKafkaConfig({ KAFKA_TLS: '2' })).toThrow(/KAFKA_BROKERS: .*\n.*KAFKA_TLS: /);
  });
});

test('the table for help names every variable once, with its default', () => {
  const lines = describeVariables().split('\n');
  expect(lines.map((line) => line.trim().split(/\s+/)[0]?.replace('[_FILE]', ''))).toEqual(Object.keys(VARIABLES));
  expect(lines.find((line) => line.includes('RESERVATION_MS'))).toMatch(/ \(unset\) .*at most 25000 \[ms\]$/);
});

describe('form keys', () => {
  const FORM_KEY = `2:${'ab'.repeat(32)}\n1:${'cd'.repeat(32)}`;

  test('are read from the variable, or from a file that may be replaced', () => {
    expect(loadFormKeys({})).toBeUndefined();
    expect(loadFormKeys({ FORM_KEY })?.all.map(({ number }) => number)).toEqual([2, 1]);
    expect(loadFormKeys({ FORM_KEY_FILE: '/keys' }, () => `${FORM_KEY}\n`)?.writing.number).toBe(2);
    let text = FORM_KEY;
    const { api } = loadWorkerConfig({ ...WORKER, FORM_KEY_FILE: '/keys' }, () => text);
    text = `3:${'ef'.repeat(32)}\n${FORM_KEY}`;
    expect(api?.formKeys?.()).toBe(text);
  });

  test('are rejected when invalid, naming the line but not the key', () => {
    const faults = errorsOf({ ...WORKER, FORM_KEY: `${FORM_KEY}\n1:${'0a'.repeat(32)}` });
    expect(faults).toEqual(['FORM_KEY: line 3 repeats the number 1']);
    expect(() => loadFormKeys({ FORM_KEY: 'abababab' })).toThrow('FORM_KEY: line 1 must be number:key');
    expect(() => loadFormKeys({ FORM_KEY: 'abababab' })).not.toThrow('abab');
  });
});

describe('quotas', () => {
  const QUOTAS = 'id.replies.acme. 100000 50; id.requests.reply 5 -';
  test('are read from the variable, or from a file', () => {
    expect(loadWorkerConfig({ ...WORKER, QUOTAS }).quotas?.()).toBe(QUOTAS);
    const config = loadWorkerConfig({ ...WORKER, QUOTAS_FILE: '/quotas' }, () => `${QUOTAS}\n`);
    expect(config.quotas?.()).toBe(QUOTAS);
    expect(loadWorkerConfig(WORKER).quotas).toBeUndefined();
  });

  test('of a file that changes are those of its last valid text', () => {
    let content = QUOTAS;
    const { quotas, secretFiles } = loadWorkerConfig({ ...WORKER, QUOTAS_FILE: '/quotas' }, () => content);
    content = '# none any more';
    expect(quotas?.()).toBe(content);
    const last = content;
    for (const [text, problem] of [
      ['', 'is empty'],
      ['id.replies.acme. many -', "has 'id.replies.acme. many -'"],
      ['replies.acme. 5 -', "has 'replies.acme.', which matches no allowed reply topic"],
    ] as const) {
      content = text;
      expect(quotas?.()).toBe(last);
      expect(secretFiles.map((file) => [file.variable, file.problem])).toEqual([
        ['QUOTAS_FILE', expect.stringContaining(problem)],
      ]);
    }
  });

  test.each([
    ['id.replies.acme. many -', "QUOTAS: has 'id.replies.acme. many -'"],
    ['replies.acme. 5 -', "QUOTAS: has 'replies.acme.', which matches no allowed reply topic"],
  ])('are refused when they are malformed, or match no reply topic: %s', (text, message) => {
    expect(() => loadWorkerConfig({ ...WORKER, QUOTAS: text })).toThrow(message);
  });
});
