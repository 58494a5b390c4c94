/**
 * The project of vitest.config.ts that runs a file: `short` is what `npm test` runs, the others are the long suite.
 * `few` and `alone` are for what is late beside many others: two files at a time, and one.
 */
type Project = 'short' | 'long' | 'few' | 'alone';

interface Listed {
  readonly project: Project;
  /** On two cores, beside other files; the longest start first. */
  readonly seconds: number;
  /** What it shows that no file before it does. "Also simulated": the simulator shows it too, in more variants. */
  readonly shows: string;
}

/**
 * Every file of tests on real servers. What unit tests or the simulator show is not repeated here, but for a few whole
 * histories: "also simulated". A file is in the short suite if most changes can break what it shows, else in the long
 * one. docs/internals/real-server-tests.md has this as a table.
 */
export const SUITES: Readonly<Record<string, Listed>> = {
  // npm test
  rules: { project: 'short', seconds: 6, shows: 'the alerts, by the unit tests of promtool' },
  'broker-killed': {
    project: 'short',
    seconds: 49,
    shows: 'kill -9 of the broker that leads ledger partitions: elections and replicas of three brokers',
  },
  'clock-steps': {
    project: 'short',
    seconds: 78,
    shows: 'a real process notices steps, jumps and stops of its wall clock, and its own stops',
  },
  commands: { project: 'short', seconds: 49, shows: 'each command once, on the happy path; a whole topic replayed' },
  crash: {
    project: 'short',
    seconds: 30,
    shows: 'kill -9 of a worker under load: leases and sessions that really expire',
  },
  'end-to-end': {
    project: 'short',
    seconds: 41,
    shows: 'a request over Kafka gets its batch, in each form of request; transactions; the lease record',
  },
  'etcd-lost': {
    project: 'short',
    seconds: 35,
    shows:
      'a worker without etcd stops and hands over; one whose etcd is at its quota resumes; a frozen one wakes after its lease is gone',
  },
  identity: {
    project: 'short',
    seconds: 37,
    shows: 'worker IDs are raced for, and taken over from a killed process, on three etcd members',
  },
  'identity-contract': {
    project: 'short',
    seconds: 4,
    shows: 'simulated etcd behaves as real etcd, at its quota too: it licenses the simulator',
  },
  malformed: {
    project: 'short',
    seconds: 24,
    shows: 'bad records become dead letters with their bytes, and good ones beside them are served',
  },
  'packed-client': {
    project: 'short',
    seconds: 26,
    shows: 'the packed client serves IDs in a project of its own, on the oldest Node',
  },
  process: { project: 'short', seconds: 79, shows: 'signals, exit codes and health of a real process' },
  takeover: {
    project: 'short',
    seconds: 15,
    shows: 'the partitions of a killed worker are served by others, whose own never stop',
  },
  'wire-contract': {
    project: 'short',
    seconds: 13,
    shows: 'simulated brokers behave as real ones: it licenses the simulator',
  },
  // npm run test:full
  'cli-audit': { project: 'long', seconds: 72, shows: 'audit, against forged and broken replies' },
  audited: {
    project: 'long',
    seconds: 130,
    shows:
      'audit of 100,000 requests of every kind, through kills, a freeze, a killed broker and a replay: no finding; also simulated',
  },
  'cli-deadletters': { project: 'long', seconds: 244, shows: 'deadletters, against letters of each kind' },
  'cli-doctor': { project: 'long', seconds: 40, shows: 'doctor, against healthy and unfit servers' },
  'cli-replay': {
    project: 'long',
    seconds: 62,
    shows: 'replay, with its refusals, partitions, forwarded requests and time limit',
  },
  'cli-trace': { project: 'long', seconds: 52, shows: 'trace and leases, with losers, second replies and evictions' },
  chart: {
    project: 'long',
    seconds: 15,
    shows: 'the Helm chart, rendered by helm, fits the schemas of Kubernetes; misspelt values are rejected',
  },
  'chart-server': {
    project: 'long',
    seconds: 40,
    shows:
      "a real API server of Kubernetes accepts what the Helm chart renders, with the definitions of the operators' kinds",
  },
  client: {
    project: 'long',
    seconds: 53,
    shows: 'the client library through a stop of all workers and a restart of the broker; codecs',
  },
  'client-soak': {
    project: 'long',
    seconds: 120,
    shows:
      'services with the client library through a flood, killed and suspended workers, a stuck partition, a recreated reply topic and a killed broker: no ID twice, no call fails while workers serve',
  },
  'client-partitioners': {
    project: 'long',
    seconds: 230,
    shows: 'the partitioners of five clients; simulated: any partition',
  },
  compose: { project: 'long', seconds: 222, shows: 'docker-compose.yml' },
  'compose-cluster': {
    project: 'long',
    seconds: 150,
    shows: 'ops/compose/cluster.yml: three of each, one of which is killed, and Prometheus',
  },
  'compressed-topics': {
    project: 'long',
    seconds: 178,
    shows: 'brokers that compress topics by default, in each codec',
  },
  completion: { project: 'long', seconds: 5, shows: 'the scripts for bash, zsh and fish complete in these shells' },
  dashboard: {
    project: 'long',
    seconds: 27,
    shows: 'each query of the dashboard, by a real Prometheus that scrapes workers',
  },
  datacenters: { project: 'long', seconds: 25, shows: 'the page for a pair of topics: a second datacenter' },
  docs: { project: 'long', seconds: 191, shows: 'the commands of the pages, with their output' },
  'etcd-members': {
    project: 'few',
    seconds: 120,
    shows: 'leaders of etcd that freeze and die, and the loss of a majority',
  },
  'forged-witness': { project: 'long', seconds: 59, shows: 'a rebuild that ignores a forged witness' },
  forms: {
    project: 'long',
    seconds: 70,
    shows: 'each form over HTTP and commands, read by the libraries of the schemes',
  },
  http: {
    project: 'long',
    seconds: 112,
    shows: 'the HTTP API of a real process: hostile connections, drains, a lost lease',
  },
  'http-callers': { project: 'long', seconds: 33, shows: 'tokens and certificates that are replaced in their files' },
  'http-callers-page': { project: 'long', seconds: 103, shows: 'the page for HTTP callers' },
  'hung-transaction': { project: 'long', seconds: 12, shows: 'an open transaction in the request topic shows as lag' },
  hygiene: {
    project: 'long',
    seconds: 17,
    shows: 'connections and log of a quiet worker, also while its broker restarts',
  },
  image: {
    project: 'long',
    seconds: 280,
    shows: 'the image: size, labels, bill of materials, any user, a read-only root, no init, spans from a container',
  },
  install: {
    project: 'long',
    seconds: 90,
    shows: 'the page for installing: the tarball, and the verified systemd unit',
  },
  'interop-go': { project: 'long', seconds: 7, shows: 'the Go example' },
  'interop-java': { project: 'long', seconds: 61, shows: 'the Java example' },
  'interop-kcat': { project: 'long', seconds: 18, shows: 'the kcat example' },
  'interop-nestjs': { project: 'long', seconds: 26, shows: 'the NestJS example' },
  'interop-python': { project: 'long', seconds: 43, shows: 'the Python example' },
  'interop-spring': { project: 'long', seconds: 29, shows: 'the Spring example' },
  'kafka-away': {
    project: 'long',
    seconds: 47,
    shows: 'workers that start while Kafka is down, or are cut off from it',
  },
  'kafka-logins': {
    project: 'long',
    seconds: 230,
    shows: 'sessions that end and secrets that are replaced, for each SASL mechanism and for the client library',
  },
  'kafka-rights': { project: 'long', seconds: 113, shows: 'rights that are revoked and granted under load' },
  layouts: { project: 'long', seconds: 86, shows: 'three other layouts through every door, and the end of a layout' },
  leaderless: { project: 'long', seconds: 180, shows: 'partitions without a leader, and unclean elections' },
  'more-partitions': { project: 'long', seconds: 165, shows: 'the page for a pair of topics: more partitions' },
  'package-nestjs': {
    project: 'long',
    seconds: 90,
    shows: 'the NestJS module in an application of its own, on NestJS 11 and 12',
  },
  package: { project: 'long', seconds: 605, shows: 'the packages in each module system and in a browser' },
  'package-bundlers': { project: 'long', seconds: 200, shows: 'the packed client in each bundler and on each runtime' },
  'package-types': {
    project: 'long',
    seconds: 60,
    shows: 'types and manifests of the packages, by the oldest TypeScript',
  },
  pasted: {
    project: 'long',
    seconds: 60,
    shows: 'the blocks of README and quickstart as printed, on what `npm start` gives',
  },
  registry: { project: 'long', seconds: 101, shows: 'a real schema registry' },
  release: { project: 'long', seconds: 104, shows: 'a release is built from a commit' },
  'reply-faults': {
    project: 'long',
    seconds: 22,
    shows: 'reply topics that are deleted, get partitions, are too small, or get large replies',
  },
  restored: {
    project: 'long',
    seconds: 101,
    shows: 'etcd that is wiped or restored from a backup, and the rebuild; also simulated',
  },
  secured: { project: 'long', seconds: 198, shows: 'servers with logins, certificates and least rights' },
  'secured-brokers': { project: 'few', seconds: 209, shows: 'brokers that change their CA' },
  'secured-doctor': { project: 'long', seconds: 155, shows: 'doctor on servers that deny by default' },
  'secured-etcd': {
    project: 'long',
    seconds: 98,
    shows: 'logins, certificates and rights of etcd that change under load',
  },
  programs: {
    project: 'long',
    seconds: 60,
    shows: 'the benchmarks and other programs that pages show: a small run, or the help',
  },
  site: {
    project: 'long',
    seconds: 150,
    shows: 'the site of the pages in Chromium, at the width of a phone and of desktops',
  },
  'sequences-http': {
    project: 'long',
    seconds: 40,
    shows: 'a key has the same numbers and the same IDs over HTTP from two workers, and after the owner is killed',
  },
  'rolling-upgrade': {
    project: 'long',
    seconds: 60,
    shows: 'workers of the last release and of this version side by side, under load, upwards and back',
  },
  sequences: {
    project: 'long',
    seconds: 60,
    shows:
      'numbers without a gap from three workers while owners are killed and frozen, the broker restarts and replies are lost; the commands of sequences. Also simulated',
  },
  'sequences-idle': {
    project: 'long',
    seconds: 60,
    shows: 'sequences whose statements retention deletes, with kept and with lost indexes',
  },
  'million-numbers': {
    project: 'long',
    seconds: 180,
    shows:
      'a million numbers through kills, freezes, a lost tail, a fail-over to a mirror that lags and a wiped etcd; also simulated',
  },
  'two-memories': {
    project: 'long',
    seconds: 150,
    shows:
      'a site on a mirror that lags, a copy at other offsets, an empty cluster, after a lost tail; also simulated: numbers go on, each once',
  },
  takeovers: {
    project: 'long',
    seconds: 117,
    shows: 'restarts with an instance ID, rolling restarts, a fenced process',
  },
  'status-page': {
    project: 'long',
    seconds: 20,
    shows: 'the status page in a real browser: a ready worker, and one whose etcd is gone',
  },
  tenants: { project: 'long', seconds: 157, shows: 'the pages for a pair of topics (a tenant) and for quotas' },
  testcontainers: { project: 'long', seconds: 76, shows: 'the package for tests of users, with containers and faults' },
  'three-brokers': {
    project: 'long',
    seconds: 190,
    shows:
      'frozen leaders, two dead brokers of three, and a client while leaders move and a broker gets another address',
  },
  traces: {
    project: 'long',
    seconds: 30,
    shows: 'a trace from a service over its client to workers, received as a collector receives it',
  },
  alerts: {
    project: 'few',
    seconds: 360,
    shows:
      'a real Prometheus fires each alert for the fault that it names, and none for two that serve for five minutes',
  },
  // npm run test:full, one at a time: they measure, or break servers in any order
  speed: {
    project: 'alone',
    seconds: 240,
    shows: 'throughput, latency, idle cost and index, measured in turn with the last release',
  },
  chaos: { project: 'alone', seconds: 94, shows: 'faults of everything at once: it breaks the servers in any order' },
  listeners: {
    project: 'alone',
    seconds: 40,
    shows: 'floods of connections at the API and the ops port: they need the machine',
  },
};

function pathOf(name: string): string {
  return `test/integration/${name}.test.ts`;
}

/** The paths of a project's files. */
export function filesOf(project: Project): string[] {
  return Object.keys(SUITES)
    .filter((name) => SUITES[name]?.project === project)
    .map(pathOf);
}
