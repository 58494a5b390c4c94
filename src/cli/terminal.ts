import type { LogFormat } from '../config/variables.ts';
import { visible } from '../core/visible.ts';
import { IdallocError } from '../errors.ts';
import type { CliContext } from './context.ts';

type Paint = (text: string) => string;

/**
 * Styles are lone surrogates until a text is written: no text that was decoded from bytes has any, so what records and
 * servers contain can't be taken for a style.
 */
const STYLES = 0xdc00;
const CLEAR_LINE = '\udcff';
const STYLED = /([\udc00-\udcff])/u;

/** A text as it may reach the terminal: the styles of this file take effect, and nothing else in it does. */
export function terminalText(text: string): string {
  const part = (one: string, index: number) => (index % 2 === 0 ? visible(one) : controlOf(one));
  return text.split(STYLED).map(part).join('');
}

function controlOf(style: string): string {
  return style === CLEAR_LINE ? '\r\u001b[K' : `\u001b[${style.charCodeAt(0) - STYLES}m`;
}

/** Colours for stdout; plain text if it is not a terminal, or with NO_COLOR or TERM=dumb. */
export function palette({ terminal, env }: Pick<CliContext, 'terminal' | 'env'>): Record<Colour, Paint> {
  const plain = !terminal.output || isPlain(env);
  const style = (code: number) => String.fromCharCode(STYLES + code);
  const paint = (code: number): Paint => (plain ? (text) => text : (text) => `${style(code)}${text}${style(0)}`);
  return { bold: paint(1), dim: paint(2), red: paint(31), green: paint(32), yellow: paint(33) };
}

type Colour = 'bold' | 'dim' | 'red' | 'green' | 'yellow';

/** The log on a stream as text, if LOG_FORMAT asks for it, or the stream is a terminal and LOG_FORMAT is not set. */
export function logText(
  { terminal, env }: { readonly terminal: Partial<CliContext['terminal']>; readonly env: CliContext['env'] },
  format: LogFormat,
  stream: 'output' | 'errors',
): { readonly colours: boolean } | undefined {
  const isTerminal = terminal[stream] === true;
  if ((format ?? (isTerminal ? 'text' : 'json')) === 'json') return undefined;
  return { colours: isTerminal && !isPlain(env) };
}

function isPlain(env: CliContext['env']): boolean {
  return (env.NO_COLOR ?? '') !== '' || env.TERM === 'dumb';
}

/**
 * Asks before something that can't be undone. `yes` skips the question, for scripts.
 *
 * @throws IdallocError NOT_CONFIRMED without a terminal, or when the answer is not y or yes; STOPPING after Ctrl-C.
 */
export async function confirm(context: CliContext, question: string, yes?: boolean): Promise<void> {
  if (yes === true) return;
  if (!context.terminal.input || !context.terminal.errors) {
    throw new IdallocError('NOT_CONFIRMED', `${question} There is no terminal to prompt on: confirm with --yes`);
  }
  const answer = await context.ask(`${question} [y/N] `);
  if (context.stop.aborted) throw new IdallocError('STOPPING', 'stopped at the question: nothing was changed');
  if (!/^y(es)?$/i.test(answer.trim())) throw new IdallocError('NOT_CONFIRMED', 'nothing was changed');
}

/** On a terminal one line is redrawn; elsewhere a new line is written now and then. */
const REDRAW_MS = 100;
const LINE_MS = 10_000;
const BAR_CELLS = 24;

/** Shows the progress of long work on stderr. `now` is monotonic. */
export class Progress {
  readonly #context: CliContext;
  readonly #what: string;
  readonly #total: number;
  readonly #now: () => number;
  readonly #startedMs: number;
  #shownMs: number;
  #drawn = false;

  constructor(context: CliContext, what: string, total: number, now: () => number = () => performance.now()) {
    this.#context = context;
    this.#what = what;
    this.#total = total;
    this.#now = now;
    this.#startedMs = now();
    this.#shownMs = now();
  }

  /** `done` of the total, so far. */
  show(done: number): void {
    const now = this.#now();
    const { errors, columns } = this.#context.terminal;
    if (now - this.#shownMs < (errors ? REDRAW_MS : LINE_MS)) return;
    this.#shownMs = now;
    const width = errors ? columns : undefined;
    const text = progressText(this.#what, { done, total: this.#total, elapsedMs: now - this.#startedMs }, width);
    this.#context.err(errors ? `${CLEAR_LINE}${text}` : `${text}\n`);
    this.#drawn = errors;
  }

  /** Clears the line, so that results start on an empty one. */
  end(): void {
    if (this.#drawn) this.#context.err(CLEAR_LINE);
    this.#drawn = false;
  }
}

/**
 * In less than `width` characters, since only a single line can be redrawn: a narrow terminal has no bar, and the end
 * of the text is cut.
 */
function progressText(
  what: string,
  { done, total, elapsedMs }: { readonly done: number; readonly total: number; readonly elapsedMs: number },
  width = Number.POSITIVE_INFINITY,
): string {
  const part = total === 0 ? 1 : Math.min(1, done / total);
  const full = Math.floor(part * BAR_CELLS);
  const rate = elapsedMs > 0 ? Math.round((done * 1_000) / elapsedMs) : 0;
  const bar = `${'█'.repeat(full)}${'░'.repeat(BAR_CELLS - full)}`;
  const figures = `${Math.floor(part * 100)} %  ${done} of ${total}, ${rate}/s`;
  const text = `${what} ${bar} ${figures}`;
  return text.length < width ? text : `${what} ${figures}`.slice(0, width - 1);
}
