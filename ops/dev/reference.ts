// Writes the pages that follow from the code. Usage: npm run docs:reference
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Argument, Command, type Option } from 'commander';
import { Registry } from 'prom-client';
import { FINDINGS } from '../../src/cli/audit/found.ts';
import { type CliContext, EXIT_HELP } from '../../src/cli/context.ts';
import { TIME_HELP, withLayoutOptions } from '../../src/cli/options.ts';
import { program } from '../../src/cli/program.ts';
import { pathOf } from '../../src/cli/usage.ts';
import { FORM_NAMES } from '../../src/codec/form/form.ts';
import type { Variable } from '../../src/config/variables.ts';
import { describeVariables, KAFKA_VARIABLES, WORKER_VARIABLES } from '../../src/config/variables.ts';
import { GATE_REASONS, UNREADY_REASONS } from '../../src/core/gate.ts';
import { ERRORS } from '../../src/errors.ts';
import { REFUSAL_STATUSES } from '../../src/http/ledger-issuer.ts';
import { createMetrics } from '../../src/metrics/metrics.ts';
import { cell, list, pageOf, table } from './markdown.ts';
import { monitoring } from './monitoring.ts';
import { ROOT } from './paths.ts';

const HTTP_ROOM = join(ROOT, 'src/http');

/** The pages that are generated. */
export const REFERENCE_PAGES = ['configuration.md', 'cli.md', 'metrics.md', 'error-codes.md', 'monitoring.md'] as const;
type ReferencePage = (typeof REFERENCE_PAGES)[number];

const WRITERS: Readonly<Record<ReferencePage, () => string>> = {
  'configuration.md': configuration,
  'cli.md': commandLine,
  'metrics.md': metrics,
  'error-codes.md': errorCodes,
  'monitoring.md': monitoring,
};

/** Those of pages that are not part of the reference. */
const FOLDERS: Partial<Record<ReferencePage, string>> = {
  'monitoring.md': 'docs/operations',
};

/** The path of a generated page. */
export function referencePath(page: ReferencePage): string {
  return join(ROOT, FOLDERS[page] ?? 'docs/reference', page);
}

/** The text of the page. */
export function renderReference(page: ReferencePage): string {
  return WRITERS[page]();
}

// --- configuration

function variables(table_: Readonly<Record<string, Variable<unknown>>>): string {
  const items = Object.entries(table_).map(([name, { meaning, unit, fallback, required, secret }]) => {
    const names = secret ? `\`${name}\`, \`${name}_FILE\`` : `\`${name}\``;
    const otherwise = required ? ', required' : fallback === undefined ? '' : `, \`${fallback}\``;
    return [names, `${cell(unit)}${otherwise}`, cell(meaning)] as const;
  });
  return list(items);
}

function configuration(): string {
  return pageOf(
    `# Configuration

For operators: every variable of workers and commands, with its unit and its default. All configuration comes from environment variables. An
empty variable counts as not set. All errors are reported together, each with the name of its variable, and the process exits with code 78.

A secret can also be a file, which \`…_FILE\` names. The file is read for each use, so replacing it rotates the secret without a
restart; see [Log in to Kafka and etcd](../how-to/logins.md).`,
    `## Kafka and topics

Read by every command that talks to Kafka.\n\n${variables(KAFKA_VARIABLES)}`,
    `## Identity, ledger index, limits and HTTP

Read by the worker and by commands that talk to etcd.\n\n${variables(WORKER_VARIABLES)}`,
    `## Variables that depend on each other

\`LEASE_TTL_SECONDS\`, \`LEASE_HEARTBEAT_MS\`, \`ETCD_REFUSE_AFTER_MS\`, \`RESERVATION_MS\` and \`LEASE_MARGIN_MS\` are checked against each other;
[how long lease and session last](../operations/running.md#how-long-lease-and-session-last) has the rules, and when to change them.`,
  );
}

// --- command line

/** Enough of a process to list commander's commands; no command is run. */
const NO_PROCESS: CliContext = {
  env: {},
  version: '0.0.0',
  stop: new AbortController().signal,
  out: () => undefined,
  err: () => undefined,
  hostIp: () => '192.0.2.1',
  who: () => 'nobody@nowhere',
  setExitCode: () => undefined,
  now: () => 0,
  terminal: { input: false, output: false, errors: false },
  ask: async () => '',
};

const LAYOUT_COMMAND = withLayoutOptions(new Command());
const LAYOUT_FLAGS: ReadonlySet<string> = new Set(LAYOUT_COMMAND.options.map(({ flags }) => flags));
const FORMS = FORM_NAMES.join();

/** An option with its meaning. How a time and a form are written is said once, elsewhere. */
function optionLine(option: Option): string {
  const choices = option.argChoices?.map((choice) => `\`${choice}\``).join(', ');
  const isForm = option.argChoices?.join() === FORMS;
  const notes = [
    cell(option.description)
      .replace(cell(TIME_HELP), '[a time](#times)')
      .replace(/^print one line of JSON(: |, |$)/, ''),
    isForm ? '[a form](forms.md#the-forms)' : choices === undefined ? '' : `one of ${choices}`,
    option.mandatory ? 'required' : '',
    defaultOf(option),
  ];
  const text = notes.filter(Boolean).join('; ');
  return `- \`${option.flags}\`${text === '' ? '' : `: ${text}`}`;
}

function defaultOf({ defaultValue, negate, flags }: Option): string {
  if (defaultValue === undefined || negate) return '';
  return flags.includes('--temp-dir') ? 'default: the temporary directory' : `default: \`${String(defaultValue)}\``;
}

/** A command's own options, and one line for those that choose a layout. */
function optionLines(command: Command): readonly string[] {
  const shown = command.options.filter(({ hidden }) => !hidden);
  const own = shown.filter(({ flags }) => !LAYOUT_FLAGS.has(flags));
  const rest = own.length === shown.length ? [] : ['- [layout options](#layout-options)'];
  return [...rest, ...own.map(optionLine)];
}

/** Arguments, options, the help text after them and what it prints, of a command that has an action. */
function commandPart(command: Command): string {
  const args = command.registeredArguments.map(
    (argument) => `- \`${argumentText(argument)}\`: ${cell(argument.description)}`,
  );
  const lines = [...args, ...optionLines(command)];
  return [
    `## ${pathOf(command)}`,
    cell(command.description()),
    ...(lines.length === 0 ? [] : [lines.join('\n')]),
    ...explanation(command),
    EXAMPLES.get(pathOf(command)) ?? '',
  ]
    .filter(Boolean)
    .join('\n\n');
}

/** An argument as the usage shows it: `<id...>` for one or more, `[name]` for one that may be left out. */
function argumentText(argument: Argument): string {
  const name = `${argument.name()}${argument.variadic ? '...' : ''}`;
  return argument.required ? `<${name}>` : `[${name}]`;
}

const [BEGINNING = '', ...PARTS] = readFileSync(join(ROOT, 'ops/dev/command-line.md'), 'utf8').split(/^## /m);
const belowFirstLine = (part: string) => part.slice(part.indexOf('\n')).trim();
/** By command: what its part of the page ends with, such as its output. */
const EXAMPLES: ReadonlyMap<string, string> = new Map(
  PARTS.map((part) => [part.slice(0, part.indexOf('\n')), belowFirstLine(part)]),
);

/** Lists of the help that other pages have. */
const ELSEWHERE = [
  [describeVariables(), '  (the table of Configuration)'],
  [new RegExp(`(^  (${Object.keys(FINDINGS).join('|')}) .*\\n)+`, 'm'), '  (the table of Audit the history)\n'],
] as const;

/** commander does not expose the help text after the options, so it is cut from the whole help. */
function helpAfter(command: Command): string {
  let shown = '';
  command.configureOutput({ writeOut: (text) => (shown += text) });
  command.outputHelp();
  const text = shown.slice(command.helpInformation().length).trim();
  return ELSEWHERE.reduce((rest, [list, place]) => rest.replace(list, place), text);
}

/** What the help explains after the options; its examples are left to --help. */
function explanation(command: Command): string[] {
  const [text = ''] = helpAfter(command).split(/^Examples:/m);
  return text.trim() === '' ? [] : [`\`\`\`text\n${text.trim()}\n\`\`\``];
}

/** The commands that can be run: a command with commands below it is one only if it has examples of its own. */
function runnable(command: Command): Command[] {
  const own = command.commands.length === 0 || helpAfter(command).includes('Examples:');
  return [...(own ? [command] : []), ...command.commands.flatMap(runnable)];
}

const COMMAND_LINE = await program(NO_PROCESS);

function commandLine(): string {
  const codes = EXIT_HELP.trim().split('\n').slice(1);
  const exits = codes.map((line) => [...(/^\s*(\d+)\s+(.*)$/.exec(line) ?? [])].slice(1).map(cell));
  const commands = COMMAND_LINE.commands.flatMap(runnable);
  const strays = [...EXAMPLES.keys()].filter((path) => !commands.some((command) => pathOf(command) === path));
  if (strays.length > 0) throw new Error(`ops/dev/command-line.md names no command: ${strays.join()}`);
  return pageOf(
    belowFirstLine(BEGINNING),
    `## Exit codes\n\n${table(['exit code', 'meaning'], exits)}`,
    `## Layout options\n\nFor IDs of another layout, with every command that reads IDs.\n\n${LAYOUT_COMMAND.options.map(optionLine).join('\n')}`,
    `## Times\n\nA time is ${cell(TIME_HELP)}.`,
    ...commands.map(commandPart),
  );
}

// --- metrics

function metrics(): string {
  const registry = new Registry();
  createMetrics({ registry });
  const all = registry.getMetricsAsArray() as unknown as readonly {
    readonly name: string;
    readonly help: string;
    readonly labelNames: readonly string[];
    collect(): unknown;
  }[];
  const rows = all
    .filter(({ name }) => name.startsWith('idalloc_'))
    .map((metric) => {
      const { name, help, labelNames } = metric;
      const labels = labelNames.filter((label) => label !== 'le');
      const shown = labels.length === 0 ? name : `${name}{${labels.join(', ')}}`;
      return [`\`${shown}\``, metric.constructor.name.toLowerCase(), cell(help)] as const;
    });
  return pageOf(
    `# Metrics

For operators: every metric of a worker. \`GET /metrics\` on \`OPS_PORT\` (9464) returns them in the text format of Prometheus, rendered at
most once a second. Times are in seconds. [Monitor workers](../operations/monitoring.md) has alerts and a
dashboard that use them.`,
    list(rows.toSorted(([one = ''], [other = '']) => one.localeCompare(other))),
    `The page also has the process metrics of \`prom-client\`: \`process_…\` and \`nodejs_…\`, such as the event loop's delay,
\`nodejs_eventloop_lag_p99_seconds\`.`,
  );
}

// --- error codes

/**
 * The HTTP statuses of codes: those in the API's sources, those of what the ledger decides, and 503 for reasons why a
 * worker does not serve.
 */
function statuses(): ReadonlyMap<string, string> {
  const sources = readdirSync(HTTP_ROOM).map((name) => readFileSync(join(HTTP_ROOM, name), 'utf8'));
  const given = sources.flatMap((source) =>
    [...source.matchAll(/new Problem\((\d{3}), [^\n]*code: '([A-Z_]+)'/g)].map(
      ([, status = '', code = '']) => [code, status] as const,
    ),
  );
  const refusals = Object.entries(REFUSAL_STATUSES).map(([code, [status]]) => [code, `${status}`] as const);
  return new Map([...[...GATE_REASONS, 'OVERLOADED'].map((code) => [code, '503'] as const), ...given, ...refusals]);
}

function errorCodes(): string {
  const http = statuses();
  const link = (code: string) => `[\`${code}\`](../operations/runbook.md#${code.toLowerCase()})`;
  const rows = Object.entries(ERRORS).map(([code, { retryable, deadLetter }]) => [
    link(code),
    retryable ? 'yes' : '',
    deadLetter ? 'yes' : '',
    http.get(code) ?? '',
  ]);
  const reasons = UNREADY_REASONS.filter((reason) => !(reason in ERRORS));
  return pageOf(
    `# Error codes

For everyone who sees a code. The set is closed: every error has one of these codes. It is in the \`IdError\` of a reply, the
\`kafka_dlt-exception-fqcn\` header of a dead letter, the field \`code\` of a log line, \`idalloc_errors_total{code}\`, the \`code\` of an HTTP
problem, and the last line of a command. Each links to its entry in the [runbook](../operations/runbook.md): meaning and remedy.

- **retry**: the same call may succeed later without any change.
- **dead letter**: the request can't be served as it stands; its record goes to the dead-letter topic.
- **HTTP**: the status with which the [HTTP API](http.md) returns the code.`,
    table(['code', 'retry', 'dead letter', 'HTTP'], rows),
    `## Further reasons of readiness

\`/readyz\` also has these. With a status they are reasons of the gate, in \`idalloc_gate{reason}\` too; with the others the gate is open.`,
    reasons.map((reason) => `- ${link(reason)}${http.has(reason) ? ` (${http.get(reason)})` : ''}`).join('\n'),
  );
}

if (import.meta.main) for (const page of REFERENCE_PAGES) writeFileSync(referencePath(page), renderReference(page));
