/**
 * How each command of the pages is tried. A page is followed from its first command to its last by one of these tests; a
 * command that such a test can't run has a test, or a program that no test runs whole, in ELSEWHERE.
 */

/** Followed in this order, in one realm, by test/integration/docs.test.ts, which compares the output as well. */
export const FOLLOWED: readonly string[] = [
  'README.md',
  'docs/quickstart.md',
  'docs/how-to/client.md',
  'docs/how-to/languages.md',
  'docs/reference/http.md',
  'docs/how-to/command-line.md',
  'docs/operations/running.md',
  'docs/how-to/scaling.md',
  'docs/how-to/rolling-upgrade.md',
  'docs/how-to/restore.md',
  'docs/how-to/sql-json-browsers.md',
  'docs/reference/forms.md',
];

/** Pages that need a stage of their own: the test that follows each. */
export const FOLLOWED_APART: ReadonlyMap<string, string> = new Map([
  ['docs/how-to/tenants.md', 'test/integration/tenants.test.ts'],
  ['docs/how-to/more-partitions.md', 'test/integration/more-partitions.test.ts'],
  ['docs/how-to/datacenters.md', 'test/integration/datacenters.test.ts'],
  ['docs/how-to/http-callers.md', 'test/integration/http-callers-page.test.ts'],
]);

/** Pages that no test follows line by line: the test that tries the same commands and snippets. */
export const TRIED_BY: ReadonlyMap<string, string> = new Map([
  ['docs/how-to/kafka-logins.md', 'test/integration/kafka-rights.test.ts'],
]);

/** Pages whose programs a test takes from the page and runs; those of other pages are excerpts of the examples. */
export const PROGRAMS_RUN_BY: ReadonlyMap<string, string> = new Map([
  ['README.md', 'test/integration/package.test.ts'],
  ['docs/how-to/client.md', 'test/integration/package.test.ts'],
  ['docs/how-to/tests.md', 'test/integration/package.test.ts'],
  ['docs/how-to/sql-json-browsers.md', 'test/integration/package.test.ts'],
  ['docs/reference/forms.md', 'test/integration/package.test.ts'],
]);

/** Other commands: the test that runs each, or the program that no test runs whole. */
export const ELSEWHERE: ReadonlyMap<string, string> = new Map([
  ['npm start', 'ops/dev/start.ts'],
  ['npm start -- --once --json', 'ops/dev/start.ts'],
  ['npm test', 'ops/dev/test.ts'],
  ['IDALLOC_TEST_SERVERS=processes npm test -- test/integration/conflict', 'ops/dev/test.ts'],
  ['npm run quick', 'ops/dev/quick.ts'],
  ['npm run fix', 'biome.json'],
  ['npx vitest run --project unit test/codec/reply-policy', 'test/codec/reply-policy.test.ts'],
  ['npx vitest --project unit test/pipeline', 'vitest.config.ts'],
  ['node test/sim/main.ts --seeds 200', 'test/sim/sim.test.ts'],
  ['node test/sim/main.ts --mutant "PART OF ITS NAME"', 'test/sim/sim.test.ts'],
  ['npm run chaos -- --minutes 2', 'test/integration/chaos.alone.test.ts'],
  ['npm run arrows', 'ops/lint/arrows.ts'],
  ['npm run check:arrows', 'ops/lint/arrows.ts'],
  ['npm run notice', 'test/ops/shipped.test.ts'],
  ['npm run docs:reference', 'test/docs/reference.test.ts'],
  ['npm run docs:site', 'ops/site/build.mjs'],
  ['npx idalloc', 'test/integration/package.test.ts'],
  ['npm run schemas', 'test/codec/schemas.test.ts'],
  ['npm run release', 'test/integration/release.test.ts'],
  ['npm run packages', 'test/integration/package.test.ts'],
  ['npx esbuild service.js --bundle --platform=node --outfile=service.cjs', 'test/integration/package.test.ts'],
  ['npm install lz4-napi', 'test/kafka/records/codecs.test.ts'],
  ['echo "1:$(openssl rand -hex 32)" > form.key', 'test/integration/package.test.ts'],
  ['npm install', 'test/integration/package.test.ts'],
  ['npm install aws-msk-iam-sasl-signer-js', 'test/integration/kafka-logins.test.ts'],
  ['docker build -f ops/Dockerfile -t idalloc:local .', 'test/integration/testcontainers.alone.test.ts'],
  ['docker build -f ops/Dockerfile.faults -t idalloc:faults .', 'test/integration/testcontainers.alone.test.ts'],
  ['docker compose up', 'test/integration/compose.test.ts'],
  ['npm run sim -- --seeds 100', 'test/sim/sim.test.ts'],
  ['npm run sim -- --seed 7', 'test/sim/sim.test.ts'],
  ['npm run sim -- --mutants', 'test/sim/sim.test.ts'],
  ['npm run chaos -- --minutes 10', 'test/integration/chaos.alone.test.ts'],
  ['npm run chaos -- --minutes 10 --seed N', 'test/integration/chaos.alone.test.ts'],
  ['npm run sbom', 'test/ops/shipped.test.ts'],
  ['npm run bench', 'test/bench/throughput.ts'],
  ['npm run bench:forms', 'test/bench/forms.ts'],
  ['npm run bench:audit', 'test/bench/audit.ts'],
  ['npm run bench:client', 'test/bench/client.ts'],
  ['npm run check:advisories', 'ops/dev/advisories.ts'],
  ['npm run bench:http', 'test/bench/http.ts'],
  ['npm run bench:latency', 'test/bench/latency.ts'],
  ['npm run bench:idle', 'test/bench/idle.ts'],
  ['npm run bench:replay', 'test/bench/replay.ts'],
  ['npm run bench:index', 'test/bench/index.ts'],
  ['npm run bench:index -- --entries 10000000', 'test/bench/index.ts'],
  ['npm run bench:shares', 'test/bench/shares.ts'],
  ['npm run bench:shares -- --entries 10000000', 'test/bench/shares.ts'],
  ['pip install -r requirements.txt', 'test/integration/interop-python.test.ts'],
  ['python request.py --reply-topic id.replies.orders --count 5', 'test/integration/interop-python.test.ts'],
  ['mvn dependency:copy-dependencies -DoutputDirectory=libs', 'test/integration/interop-spring.test.ts'],
  [
    "java -cp 'libs/*' Requester.java localhost:9092 id.requests id.replies.orders 0 5 ../../schemas",
    'test/integration/interop-spring.test.ts',
  ],
  ['go run . -reply-topic id.replies.orders -count 5', 'test/integration/interop-go.test.ts'],
  [
    "java -cp 'libs/*' Requester.java localhost:9092 id.requests id.replies.orders 5 ../../schemas",
    'test/integration/interop-java.test.ts',
  ],
  ['npm ci', 'test/integration/interop-nestjs.test.ts'],
  ['node requester.js localhost:9092 id.requests 5 ../../schemas', 'test/integration/interop-nestjs.test.ts'],
  ['./request.sh localhost:9092 id.requests id.replies.orders 5', 'test/integration/interop-kcat.test.ts'],
]);
