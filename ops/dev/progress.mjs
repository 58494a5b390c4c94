// Plain JavaScript, because bootstrap.mjs needs it before the pinned Node, which runs TypeScript, is installed.

const TICK_MS = 1_000;
const CLEAR = '\u001b[2K';
const HIDES_ESCAPES = ['NO_COLOR', 'CI'];

/**
 * True if a line of this stream can be rewritten: it is a terminal, and nothing asks for plain output.
 * @param {{ isTTY?: boolean }} stream
 * @param {NodeJS.ProcessEnv} env
 */
export function canRewrite(stream, env) {
  return stream.isTTY === true && env.TERM !== 'dumb' && HIDES_ESCAPES.every((name) => !env[name]);
}

/**
 * Progress with the seconds since the start. `say` writes lines that stay. `step` shows what is being done: at a
 * terminal as one last line that each step rewrites, and that counts the seconds; elsewhere as a line. The cursor stays
 * at the start of that line, so that the output of a child process overwrites it.
 * @param {{ write(text: string): unknown, isTTY?: boolean, columns?: number }} stream
 * @param {{ env: NodeJS.ProcessEnv, nowMs?: () => number }} options
 */
export function progressOn(stream, { env, nowMs = () => performance.now() }) {
  const rewrites = canRewrite(stream, env);
  const startedAt = nowMs();
  /** @type {string | undefined} */
  let current;
  /** @type {NodeJS.Timeout | undefined} */
  let ticks;

  const stamped = (/** @type {string} */ text) =>
    `[${((nowMs() - startedAt) / 1000).toFixed(1).padStart(5)} s] ${text}`;
  const erase = () => {
    if (current !== undefined) stream.write(CLEAR);
  };
  const draw = () => {
    if (current === undefined) return;
    const line = stamped(current.replaceAll(/\s+/g, ' '));
    stream.write(`${CLEAR}${line.slice(0, (stream.columns || 80) - 1)}\r`);
  };

  const print = (/** @type {string} */ line) => {
    erase();
    stream.write(`${line}\n`);
    draw();
  };

  return {
    print,
    /** @param {string} text */
    say: (text) => print(stamped(text)),
    /** @param {string} text */
    step(text) {
      if (!rewrites) {
        stream.write(`${stamped(text)}\n`);
        return;
      }
      current = text;
      draw();
      ticks ??= setInterval(draw, TICK_MS).unref();
    },
    /** Removes the line of the last step. */
    settle() {
      clearInterval(ticks);
      ticks = undefined;
      erase();
      current = undefined;
    },
  };
}

/** The progress of this process, on standard error. */
export const progress = progressOn(process.stderr, { env: process.env });
