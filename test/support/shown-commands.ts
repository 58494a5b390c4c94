/**
 * How each command of the pages is tested. A test follows each page from its first command to its last; ELSEWHERE has
 * the commands that such a test can't run.
 */

/** Pages that test/integration/docs.test.ts follows, in this order and in one realm. It also compares the output. */
export const FOLLOWED: readonly string[] = [
  'docs/how-to/client.md',
  'docs/reference/http.md',
  'docs/reference/cli.md',
  // It lists what was done on the page before it.
  'docs/operations/journal.md',
  'docs/operations/running.md',
  'docs/how-to/rolling-upgrade.md',
  'docs/how-to/rebuild.md',
  'docs/how-to/sql-json-browsers.md',
  'docs/reference/forms.md',
  // The last ones, since an audit counts the records of sequences.
  'docs/how-to/sequences.md',
  'docs/how-to/migrate.md',
];

/** Runs each block of its pages as printed, on what `npm start` gives. */
export const PASTED = 'test/integration/pasted.test.ts';

/** Pages that need servers or settings of their own, with the test that follows each. */
export const FOLLOWED_APART: ReadonlyMap<string, string> = new Map([
  ['README.md', PASTED],
  ['docs/quickstart.md', PASTED],
  ['docs/how-to/languages.md', PASTED],
  ['docs/how-to/pair-of-topics.md', 'test/integration/pair-of-topics.test.ts'],
  ['docs/how-to/quotas.md', 'test/docs/quotas.test.ts'],
  ['docs/how-to/http-callers.md', 'test/integration/http-callers-page.test.ts'],
  ['docs/operations/install.md', 'test/integration/install.test.ts'],
  ['docs/operations/kubernetes.md', 'test/integration/chart-server.test.ts'],
]);

/** Pages that no test follows line by line, with the test that uses the same commands and snippets. */
export const TRIED_BY: ReadonlyMap<string, string> = new Map([
  ['docs/how-to/logins.md', 'test/integration/kafka-rights.test.ts'],
  ['docs/operations/disaster-recovery.md', 'test/integration/two-memories.test.ts'],
  ['docs/operations/audit.md', 'test/integration/cli-history.test.ts'],
  ['docs/operations/troubleshooting.md', 'test/integration/cli-history.test.ts'],
  ['docs/operations/etcd.md', 'test/integration/etcd-members.test.ts'],
  ['docs/operations/end-of-layout.md', 'test/cli/layout.test.ts'],
  ['docs/operations/managed-kafka.md', 'test/integration/managed-kafka.test.ts'],
]);

/** Pages whose programs a test takes from the page and runs; those of other pages are excerpts of the examples. */
export const PROGRAMS_RUN_BY: ReadonlyMap<string, string> = new Map([
  ['docs/quickstart.md', PASTED],
  ['docs/how-to/client.md', 'test/integration/package.test.ts'], // that for NestJS: package-nestjs.test.ts
  ['docs/how-to/migrate.md', 'test/docs/migrate.test.ts'],
  ['docs/how-to/patterns.md', 'test/docs/patterns.test.ts'],
  ['docs/how-to/sequences.md', 'test/client/sequence.test.ts'],
  ['docs/how-to/tests.md', 'test/integration/package.test.ts'],
  ['docs/operations/kubernetes.md', 'test/integration/chart-server.test.ts'],
  ['docs/how-to/sql-json-browsers.md', 'test/integration/package.test.ts'],
  ['docs/reference/forms.md', 'test/integration/package.test.ts'],
  ['docs/operations/monitoring.md', 'test/integration/rules.test.ts'],
]);

/** Where a command is run that the docs tests can't run. */
export interface RunElsewhere {
  /** A test, or what `npm test` or CI runs. */
  readonly file: string;
  /** Text of the file that runs the command, or its essential part. */
  readonly by: string;
}

const SIMULATE = 'package.json'; // npm test runs each step of its script `simulate`
const CHECK = 'package.json'; // npm test runs each step of its script `check`
const PROGRAMS = 'test/integration/programs.test.ts';
const MODEL = 'test/model/sequence/sequence.test.ts';
const PACKAGE = 'test/integration/package.test.ts';
const NESTJS = 'test/integration/interop.test.ts';
const COMPOSE = 'test/integration/compose.test.ts';
const IMAGES = 'test/integration/testcontainers.test.ts';

/** Commands that the docs tests can't run: which file runs each, and how. */
export const ELSEWHERE: ReadonlyMap<string, RunElsewhere> = new Map([
  ['npm start', { file: '.ci/run', by: 'npm start -- ' }],
  ['npm start -- --once --json', { file: '.ci/run', by: 'npm start -- --once --json' }],
  ['npm start -- --no-worker', { file: 'test/integration/pasted.test.ts', by: "checkout.start('--no-worker')" }],
  ['npm test', { file: '.ci/run', by: '"$SHORT_LIMIT" npm test' }],
  ['npm run test:full', { file: '.ci/run', by: '"$LONG_LIMIT" npm run test:full' }],
  ['npm run sim -- --seeds 200', { file: SIMULATE, by: 'test/sim/main.ts --seeds ' }],
  ['npm run sim -- --seeds 100', { file: SIMULATE, by: 'test/sim/main.ts --seeds ' }],
  ['npm run sim -- --scenario failover --seeds 100', { file: SIMULATE, by: 'test/sim/main.ts --seeds ' }],
  ['npm run sim -- --mutants', { file: SIMULATE, by: 'test/sim/main.ts --mutants' }],
  ['npm run sim -- --mutants --hunts 9', { file: 'test/sim/sim.test.ts', by: "'a range off by one', '--hunts', '3'" }],
  ['IDALLOC_MUTANT="NAME" npm run test:unit FILE', { file: 'test/sim/unit-hunt.ts', by: '[MUTANT_VARIABLE]: mutant' }],
  ['npm run sim -- --seed 7', { file: 'test/sim/sim.test.ts', by: "runCli('--seed', '7')" }],
  ['npm run test:unit test/codec/reply-policy', { file: 'ops/dev/test-steps.ts', by: 'runVitest(' }],
  ['npm run sim -- --mutant "PART OF ITS NAME"', { file: PROGRAMS, by: "['sim', ['--mutant'" }],
  [
    'IDALLOC_SEED=SEED npm run test:unit FILE',
    { file: 'test/support/seeded.test.ts', by: 'env: { IDALLOC_SEED: String(SEED) }' },
  ],
  ['npm run test:seeds', { file: PROGRAMS, by: "['test:seeds', ['--count'" }],
  ['npm run test:seeds -- --count 1000 test/codec', { file: PROGRAMS, by: "['test:seeds', ['--count'" }],
  ['npm run model:sequence', { file: MODEL, by: 'it.each(QUICK.' }],
  ['npm run model:sequence -- --mutants', { file: MODEL, by: 'it.each(MUTANTS.' }],
  ['npm run way', { file: 'test/way/way.test.ts', by: "[main, '--json']" }],
  ['npm run bench:forms', { file: PROGRAMS, by: "'bench:forms'" }],
  ['npm run bench:index', { file: PROGRAMS, by: "'bench:index'" }],
  ['npm run bench:index -- --entries 10000000', { file: PROGRAMS, by: "'bench:index', ['--entries'" }],
  ['npm run quick', { file: 'ops/dev/test.ts', by: "runChain('check'" }],
  ['npx vitest --project unit test/pipeline', { file: 'ops/dev/test-steps.ts', by: "'--project', project" }],
  [
    'IDALLOC_TEST_SERVERS=processes npm test -- test/integration/malformed',
    { file: 'ops/dev/test.ts', by: 'selects(project, filter' },
  ],
  ...['two-memories', 'restored'].map(
    (name) =>
      [
        `IDALLOC_TEST_SERVERS=processes npm test -- test/integration/${name}`,
        { file: 'ops/dev/test.ts', by: 'selects(project, filter' },
      ] as const,
  ),
  [
    'node node_modules/idalloc/dist/bin.js worker', // test/integration/install.test.ts starts what the unit says
    { file: 'ops/systemd/idalloc.service', by: 'node_modules/idalloc/dist/bin.js worker' },
  ],
  ['npm run check:arrows', { file: CHECK, by: 'npm run check:arrows && ' }],
  ['npm run check:advisories', { file: CHECK, by: '&& npm run check:advisories' }],
  ['npx idalloc worker', { file: 'test/cli/orphan.test.ts', by: "npm_command: 'exec'" }],
  ['npm run notice', { file: 'test/ops/shipped.test.ts', by: 'noticeOf(SHIPPED)' }],
  ['npm run bench -- --compare COMMIT', { file: 'test/integration/speed.test.ts', by: "'--compare', commit" }],
  ['npm run sbom', { file: 'test/ops/shipped.test.ts', by: 'readBom()' }],
  ['npm run docs:reference', { file: 'test/docs/reference.test.ts', by: 'renderReference(page)' }],
  ['npm run dashboard', { file: 'test/grafana/dashboard.test.ts', by: 'renderDashboard(' }],
  ['npm run docs:drawings', { file: 'test/docs/drawings.test.ts', by: 'svgOf(' }],
  ['npm run docs:site', { file: 'test/integration/site.test.ts', by: 'ops/site/build.mjs' }],
  ['npm run schemas', { file: 'test/codec/schemas.test.ts', by: 'renderSchemas()' }],
  ['npx idalloc', { file: PACKAGE, by: 'node_modules/.bin/idalloc' }],
  ['npm run chart', { file: 'test/support/chart-render.ts', by: 'packChart(' }],
  ['npm run packages', { file: PACKAGE, by: 'buildPackages(' }],
  ...['1.2.3', '1.3.0-dev'].map(
    (version) =>
      [
        `npm run release:version -- ${version}`,
        { file: 'test/integration/release.test.ts', by: 'ops/release/version.ts' },
      ] as const,
  ),
  ['npm run release', { file: 'test/integration/release.test.ts', by: 'ops/release/release.ts' }],
  [
    'npm install testcontainers ../idalloc/dist/packages/idalloc-{client,testcontainers}-*.tgz',
    { file: PACKAGE, by: "projectWith(['@idalloc/client', '@idalloc/testcontainers'])" },
  ],
  ['npm install lz4-napi', { file: 'test/kafka/records/codecs.test.ts', by: 'npm install lz4-napi' }],
  [
    'npm install --prefix /opt/idalloc --omit=peer --ignore-scripts --no-audit --no-fund ./idalloc-[0-9]*.tgz',
    { file: 'test/integration/install.test.ts', by: 'npm install --prefix /opt/idalloc' },
  ],
  ['echo "1:$(openssl rand -hex 32)" > form.key', { file: PACKAGE, by: 'form.key' }],
  [
    'npm install aws-msk-iam-sasl-signer-js',
    { file: 'test/kafka/wire/logins.test.ts', by: 'npm install aws-msk-iam-sasl-signer-js' },
  ],
  [
    'npm install @opentelemetry/sdk-node@0.301',
    { file: 'test/tracing/traces.test.ts', by: 'npm install @opentelemetry\\/sdk-node@0.301' },
  ],
  ['docker build -f ops/Dockerfile -t idalloc:local .', { file: IMAGES, by: 'buildWorkerImages(' }],
  [
    'docker build -f ops/Dockerfile --build-arg MSK=1 -t idalloc:local .',
    { file: 'test/integration/image.test.ts', by: "args: { MSK: '1' }" },
  ],
  ['docker build -f ops/Dockerfile.faults -t idalloc:faults .', { file: IMAGES, by: 'buildWorkerImages(' }],
  [
    'docker compose -f ops/compose/cluster.yml up --build',
    { file: 'test/integration/compose-cluster.test.ts', by: "project.compose('build')" },
  ],
  ['docker compose up', { file: COMPOSE, by: "compose('up'" }],
  ['docker compose up --build', { file: COMPOSE, by: "compose('build')" }],
  ['docker compose down --volumes', { file: 'test/support/compose-project.ts', by: "compose('down', '--volumes'" }],
  ['npm ci', { file: NESTJS, by: 'nestModules()' }],
]);

/** Commands that take servers of their own, and minutes: a test only asks each for its help. */
export const HELP_ONLY: readonly string[] = [
  'npm run mutate',
  'npm run mutate -- --room core',
  'npm run model:ceilings -- --deep',
  'npm run model:heads',
  'npm run model:heads -- --deep',
  'npm run model:heads -- --mutants',
  'npm run model:sequence -- --deep',
  'npm run model:sequence -- --deep --only "two owners"',
  'npm run chaos -- --minutes 2',
  'npm run chaos -- --minutes 10',
  'npm run chaos -- --minutes 10 --seed N',
  'npm run bench',
  'npm run bench:audit',
  'npm run bench:client',
  'npm run bench:client-soak',
  'npm run bench:http',
  'npm run bench:in-flight',
  'npm run bench:path',
  'npm run bench:prices',
  'npm run bench:peers',
  'npm run bench:replay',
  'npm run bench:report',
  'npm run bench:growth',
  'npm run bench:growth -- --only alone',
  'npm run bench:neighbour',
  'npm run bench:sequence',
  'npm run bench:traces',
  'npm run bench:way',
  'npm run bench:shares',
  'npm run bench:shares -- --entries 10000000',
];

/** Commands that no test runs, with the reason. */
export const UNTESTED: ReadonlyMap<string, string> = new Map([
  ['npm run fix', 'it would change the checkout; `npm run check:biome` runs the same rules'],
]);
