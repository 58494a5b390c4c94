import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { expect } from 'vitest';
import { docker, ensureCompose } from '../../ops/dev/docker-engine.ts';
import { buildInTurn } from '../../ops/dev/images.ts';
import { ROOT } from '../../ops/dev/paths.ts';
import { unique } from './unique.ts';

const BUILD_MS = 600_000;
const READY_MS = 120_000;
const execute = promisify(execFile);

export function composeLog(line: string): void {
  process.stderr.write(`compose test: ${line}\n`);
}

/** A Compose project of its own, from a file of this checkout. Its disposal removes its containers and volumes. */
export class ComposeProject implements AsyncDisposable {
  readonly #words: readonly string[];
  readonly #env: NodeJS.ProcessEnv;
  readonly #name = `idalloc-test-${unique()}`;
  readonly #file: string;

  private constructor(words: readonly string[], file: string, env: NodeJS.ProcessEnv) {
    [this.#words, this.#file] = [words, file];
    this.#env = { ...process.env, ...env, COMPOSE_PROJECT_NAME: this.#name };
  }

  /** `env`: what the file reads, such as ports of this machine. */
  static async create(file: string, env: NodeJS.ProcessEnv): Promise<ComposeProject> {
    const words = await ensureCompose(composeLog);
    if ('unavailable' in words) throw new Error(words.unavailable);
    const buildKit = (await docker(['buildx', 'version'])).code === 0;
    return new ComposeProject(words, file, { ...env, DOCKER_BUILDKIT: buildKit ? '1' : '0' });
  }

  /** Runs a command of Compose, and returns what it prints. */
  async compose(...args: readonly string[]): Promise<string> {
    const [program = '', ...prefix] = this.#words;
    const options = { cwd: ROOT, env: this.#env, timeout: BUILD_MS, maxBuffer: 1 << 26 };
    const run = () => execute(program, [...prefix, '-f', this.#file, ...args], options);
    const { stdout } = await (args[0] === 'build' ? buildInTurn(run) : run());
    return stdout;
  }

  /** Resolves with the containers of the services, when all `count` of them are ready. */
  async readyWorkers(count: number, ...services: readonly string[]): Promise<string[]> {
    const workers = (await this.compose('ps', '-q', ...services)).split('\n').filter(Boolean);
    try {
      expect(workers).toHaveLength(count);
      for (const worker of workers) {
        await expect.poll(() => readiness(worker), { timeout: READY_MS, interval: 250 }).toBe('200');
      }
      return workers;
    } catch (error) {
      composeLog(await this.compose('logs', '--tail=40'));
      throw error;
    }
  }

  /** Removes everything that the project made, and checks that nothing is left. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.compose('down', '--volumes', '--timeout', '20');
    const left = ['ps', '--all', '--quiet', '--filter', `label=com.docker.compose.project=${this.#name}`];
    expect((await docker(left)).stdout).toBe('');
  }
}

/** The status of /readyz, asked within the container: not each worker has ports on the host. */
async function readiness(container: string): Promise<string> {
  const ask =
    "fetch('http://127.0.0.1:9464/readyz').then(({ status }) => console.log(status), () => console.log('none'))";
  return (await docker(['exec', container, 'node', '-e', ask])).stdout.trim();
}
