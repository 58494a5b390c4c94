/**
 * The project of vitest.config.ts that runs a file: `short` is what `npm test` runs, the others are the long suite.
 * `few` is for what is late beside many others: two files at a time. `alone` is for what measures, or breaks servers in
 * any order: one file at a time.
 */
const PROJECTS = ['short', 'long', 'few', 'alone'] as const;
type Project = (typeof PROJECTS)[number];

interface Listed {
  readonly project: Project;
  /** On two cores, beside other files; the longest start first. */
  readonly seconds: number;
  /** What it shows that no file before it does. "Also simulated": the simulator shows it too, in more variants. */
  readonly shows: string;
}

/**
 * Every file of tests on real servers, with its seconds and what it shows. What unit tests or the simulator show is not
 * repeated here, but for a few whole histories: "also simulated". A file is in the short suite if most changes can
 * break what it shows, else in the long one.
 */
const FILES: Readonly<Record<Project, string>> = {
  short: `
rules                 10  the alerts, by the unit tests of promtool; their inhibitions, by a real Alertmanager
broker-killed         49  kill -9 of the broker that leads ledger partitions: elections and replicas of three brokers
clock-steps           78  a real process notices steps, jumps and stops of its wall clock, and its own stops
commands              49  each command once, on the happy path; a whole topic replayed
end-to-end            41  a request over Kafka gets its batch, in each form of request; transactions; the lease record
etcd-lost             35  a worker without etcd stops and hands over; one whose etcd is at its quota resumes; a frozen one wakes after its lease is gone
identity              37  worker IDs are raced for, and taken over from a killed process, on three etcd members
identity-contract      4  simulated etcd behaves as real etcd, at its quota too: it licenses the simulator
malformed             24  bad records become dead letters with their bytes, and good ones beside them are served
packed-client         26  the packed client serves IDs in a project of its own, on the oldest Node
process               79  signals, exit codes and health of a real process
takeover              15  kill -9 of a worker under load: its partitions are served by others, whose own never stop; one batch for each request
wire-contract         13  simulated brokers behave as real ones: it licenses the simulator`,
  long: `
cli-history          160  audit, trace, leases and replay: with losers, forged and second replies, evictions, forwarded requests and time limits
audited              130  audit of 100,000 requests of every kind, through kills, a freeze, a killed broker and a replay: no finding; also simulated
cli-repair           244  deadletters, against letters of each kind; doctor and topics check, against healthy and unfit servers
chart                 15  the Helm chart, rendered by helm, fits the schemas of Kubernetes; misspelt values are rejected
chart-server          40  a real API server of Kubernetes accepts what the Helm chart renders, with the definitions of the operators' kinds
client                25  a closed client lets its process exit beside a broker that hangs; codecs
client-soak          120  services with the client library through a flood, killed and suspended workers, a stuck partition, a recreated reply topic and a killed broker: no ID twice, no call fails while workers serve
client-partitioners  230  the partitioners of five clients; simulated: any partition
compose              222  docker-compose.yml
compose-cluster      150  ops/compose/cluster.yml: three of each, one of which is killed, and Prometheus
compressed-topics    178  brokers that compress topics by default, in each codec
completion             5  the scripts for bash, zsh and fish complete in these shells
dashboard             27  each query of the dashboard, by a real Prometheus that scrapes workers
docs                 191  the commands of the pages, with their output
http                  60  the HTTP API of a real process: drains, a lost lease, a silent etcd
http-callers-page    103  the page for HTTP callers
hygiene               17  connections and log of a quiet worker, also while its broker restarts
image                280  the image: size, labels, bill of materials, any user, a read-only root, no init, spans from a container
install               90  the page for installing: the tarball, and the verified systemd unit
interop              200  clients for Python, Go, Java and Spring, each copied into an empty directory, through a killed worker; kcat and NestJS
kafka-away            47  workers that start while Kafka is down, or are cut off from it
kafka-logins         230  sessions that end and secrets that are replaced, for each SASL mechanism and for the client library
kafka-rights         113  rights that are revoked and granted under load
leaderless           160  partitions without a leader, and an unclean election
pair-of-topics       150  the page for a pair of topics: more partitions, a tenant, a second datacenter
package-nestjs        90  the NestJS module in an application of its own, on NestJS 11 and 12
package              605  the packages in each module system and in a browser
package-bundlers     200  the packed client in each bundler and on each runtime
package-types         60  types and manifests of the packages, by the oldest TypeScript
pasted                60  the blocks of README and quickstart as printed, on what \`npm start\` gives
registry             101  a real schema registry
release              110  a release is built from a commit; the steps that publish it, with programs that only note what they are asked
restored              90  etcd that is wiped or restored from a backup, and the rebuild; also simulated; a namespace that moves to another prefix
secured              198  servers with logins, certificates and least rights
secured-doctor       155  doctor on servers that deny by default
secured-etcd          98  logins, certificates and rights of etcd that change under load
programs              60  the benchmarks and other programs that pages show: a small run, or the help
site                 150  the site of the pages in Chromium, at the width of a phone and of desktops
rolling-upgrade       60  workers of the last release and of this version side by side, under load, upwards and back
managed-kafka         90  brokers with a policy for topics and fixed settings, as managed services have: \`topics init --managed\`, and a worker on the result
million-numbers      180  a million numbers through kills, freezes, a lost tail, a fail-over to a mirror that lags and a wiped etcd; also simulated
two-memories         150  a site on a mirror that lags, a copy at other offsets, an empty cluster, after a lost tail; also simulated: numbers go on, each once
takeovers            117  restarts with an instance ID, rolling restarts, a fenced process
status-page           20  the status page in a real browser: a ready worker, and one whose etcd is gone
migrate               25  the page of migration on a PostgreSQL, if that is installed
quotas                40  quotas from a file, and requests over a quota, with the client library
testcontainers        76  the package for tests of users, with containers and faults
three-brokers        190  frozen leaders, two dead brokers of three, and a client while leaders move and a broker gets another address
traces                30  a trace from a service over its client to workers, received as a collector receives it`,
  few: `
etcd-members          80  leaders of etcd that freeze and die, and the loss of a majority
secured-brokers      209  brokers that change their CA
alerts               360  a real Prometheus fires each alert for the fault that it names, and none for two that serve for five minutes`,
  alone: `
speed                240  throughput, latency, idle cost and index, measured in turn with the last release
chaos                 94  faults of everything at once: it breaks the servers in any order
listeners             40  floods of connections at the API and the ops port: they need the machine`,
};

const ROW = /^(?<name>\S+) +(?<seconds>\d+) {2}(?<shows>.+)$/gm;

/** Every file of tests on real servers, by its name. */
export const SUITES: Readonly<Record<string, Listed>> = Object.fromEntries(
  PROJECTS.flatMap((project) =>
    [...FILES[project].matchAll(ROW)].map(({ groups: { name, seconds, shows } = {} }) => [
      String(name),
      { project, seconds: Number(seconds), shows: String(shows) },
    ]),
  ),
);

/** The paths of a project's files. */
export function filesOf(project: Project): string[] {
  const names = Object.keys(SUITES).filter((name) => SUITES[name]?.project === project);
  return names.map((name) => `test/integration/${name}.test.ts`);
}
