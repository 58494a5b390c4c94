import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, watch } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** What Chromium must not do on a test machine: update itself, or draw by a graphics card. */
const FLAGS = [
  ...['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-sync'],
  ...['--disable-background-networking', '--disable-component-update', '--remote-debugging-port=0'],
];

interface Reply {
  readonly id?: number;
  /** Of an event. */
  readonly method?: string;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly message: string };
}

/** A page in a headless Chromium, controlled by the DevTools protocol. */
export class BrowserPage implements AsyncDisposable {
  readonly #browser: ChildProcess;
  readonly #dir: string;
  readonly #socket: WebSocket;
  readonly #pending = new Map<number, PromiseWithResolvers<Readonly<Record<string, unknown>>>>();
  readonly #loaded = Promise.withResolvers<void>();
  #calls = 0;

  private constructor(browser: ChildProcess, dir: string, socket: WebSocket) {
    this.#browser = browser;
    this.#dir = dir;
    this.#socket = socket;
    socket.addEventListener('message', ({ data }) => this.#replied(JSON.parse(String(data))));
  }

  /** Starts the browser with a page; rejects when it ends. */
  static async open(path: string, url: string): Promise<BrowserPage> {
    const dir = mkdtempSync(join(tmpdir(), 'idalloc-browser-'));
    const browser = spawn(path, [...FLAGS, `--user-data-dir=${dir}`, 'about:blank'], { stdio: 'ignore' });
    const ended = once(browser, 'exit').then(([code]) => Promise.reject(new Error(`Chromium ended with ${code}`)));
    ended.catch(() => undefined);
    const port = await Promise.race([portIn(dir), ended]);
    const pages = (await (await fetch(`http://127.0.0.1:${port}/json/list`)).json()) as {
      webSocketDebuggerUrl: string;
    }[];
    const [page] = pages;
    if (page === undefined) throw new Error('Chromium has no page');
    const socket = new WebSocket(page.webSocketDebuggerUrl);
    await Promise.race([once(socket, 'open'), ended]);
    const opened = new BrowserPage(browser, dir, socket);
    await opened.#load(url);
    return opened;
  }

  /** The value of an expression in the page; a promise is awaited there. */
  async evaluate<T>(expression: string): Promise<T> {
    const { result, exceptionDetails } = (await this.call('Runtime.evaluate', {
      expression,
      awaitPromise: true,
      returnByValue: true,
    })) as { result: { value: T }; exceptionDetails?: { exception?: { description?: string } } };
    if (exceptionDetails !== undefined)
      throw new Error(exceptionDetails.exception?.description ?? 'an error in the page');
    return result.value;
  }

  /** Resolves when the condition, an expression, holds in the page: checked at each change of the document. */
  async until(condition: string): Promise<void> {
    await this.evaluate(`new Promise((resolve) => {
      const check = () => { if (${condition}) { observer.disconnect(); resolve(true); } };
      const observer = new MutationObserver(check);
      observer.observe(document, { subtree: true, childList: true, characterData: true, attributes: true });
      check();
    })`);
  }

  call(method: string, params: object = {}): Promise<Readonly<Record<string, unknown>>> {
    this.#calls += 1;
    const reply = Promise.withResolvers<Readonly<Record<string, unknown>>>();
    this.#pending.set(this.#calls, reply);
    this.#socket.send(JSON.stringify({ id: this.#calls, method, params }));
    return reply.promise;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#socket.close();
    if (this.#browser.exitCode === null && this.#browser.kill()) await once(this.#browser, 'exit');
    rmSync(this.#dir, { recursive: true, force: true, maxRetries: 5 });
  }

  async #load(url: string): Promise<void> {
    await this.call('Page.enable');
    await this.call('Page.navigate', { url });
    await this.#loaded.promise;
  }

  #replied({ id, method, result, error }: Reply): void {
    if (method === 'Page.loadEventFired') this.#loaded.resolve();
    const reply = this.#pending.get(id ?? 0);
    if (reply === undefined) return; // an event
    this.#pending.delete(id ?? 0);
    if (error === undefined) reply.resolve(result ?? {});
    else reply.reject(new Error(error.message));
  }
}

/** The port that Chromium writes into its directory once it listens. */
async function portIn(dir: string): Promise<number> {
  const file = join(dir, 'DevToolsActivePort');
  const written = Promise.withResolvers<void>();
  const isWritten = () => existsSync(file) && readFileSync(file, 'utf8').includes('\n') && written.resolve();
  const watcher = watch(dir, isWritten);
  isWritten();
  await written.promise;
  watcher.close();
  return Number(readFileSync(file, 'utf8').split('\n')[0]);
}
