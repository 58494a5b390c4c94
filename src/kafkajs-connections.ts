import { createRequire } from 'node:module';
import kafkajs from 'kafkajs';

const require = createRequire(import.meta.url);
let mended = false;

/**
 * Mends what the connections of kafkajs 2.2.4 do wrong and offer no setting for, once for the process. It only takes
 * faults away, so that other users of the package in the process can't tell; what changes more than that is the
 * worker's alone.
 */
export function mendConnections(): void {
  if (mended) return;
  mended = true;
  stopIdleTimers();
  connectOnce();
  joinWhenLoaded();
}

/**
 * A module from inside the package; undefined when it is not where this version has it. Whoever mends it looks whether
 * it has the parts that are known, and otherwise leaves everything as it is.
 */
export function loadFromKafkajs<T>(name: string): T | undefined {
  try {
    return require(`kafkajs/src/${name}`) as T;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'MODULE_NOT_FOUND') return undefined;
    throw error;
  }
}

interface RequestQueue {
  readonly pending: readonly unknown[];
  scheduleCheckPendingRequests(): void;
}

/**
 * Each connection of kafkajs keeps a timer going that looks for requests held back by throttling. With none held back
 * it asks for a delay before 1970, which Node takes for 1 ms and warns about: 900 wake-ups a second for each idle
 * connection. Nothing is lost by not starting it then, since holding a request back starts it too.
 */
function stopIdleTimers(): void {
  const queue = loadFromKafkajs<{ readonly prototype?: RequestQueue }>('network/requestQueue/index.js')?.prototype;
  if (typeof queue?.scheduleCheckPendingRequests !== 'function') return;
  const schedule = queue.scheduleCheckPendingRequests;
  queue.scheduleCheckPendingRequests = function (this: RequestQueue) {
    if (Array.isArray(this.pending) && this.pending.length === 0) return;
    schedule.call(this);
  };
}

interface Socket {
  removeAllListeners(event: string): unknown;
  on(event: 'error', listener: () => void): unknown;
  destroy(): unknown;
}

interface Connection {
  /** The one that was opened last. */
  readonly socket?: Socket;
  isConnected(): boolean;
  connect(): Promise<boolean>;
}

/** Longer than the client's own limit for a connection, which does not hold when the other side hangs up meanwhile. */
const CONNECT_TIMEOUT_MS = 10_000;

/**
 * Two requests that find a connection closed open a socket each: one of them is never used and never closed, and when
 * it ends, the other is taken for ended. So is one that is opened while the one before has still to end, as when a
 * consumer starts again 5 ms after a crash; a search for the coordinator that this cuts off ends the consumer for good, and
 * a join whose answer is lost leaves a member that holds up the group.
 */
function connectOnce(): void {
  const connection = loadFromKafkajs<{ readonly prototype?: Connection }>('network/connection.js')?.prototype;
  if (typeof connection?.connect !== 'function') return;
  const connect = connection.connect;
  const pending = new WeakMap<Connection, Promise<boolean>>();
  connection.connect = function (this: Connection) {
    if (this.isConnected()) return Promise.resolve(true);
    const under = pending.get(this);
    if (under !== undefined) return under;
    if (this.socket !== undefined) abandon(this.socket);
    const connected = inTime(connect.call(this)).finally(() => pending.delete(this));
    pending.set(this, connected);
    return connected;
  };
}

/** Ends a socket that is done with; what it had still to tell concerns nobody. */
function abandon(socket: Socket): void {
  for (const event of ['connect', 'secureConnect', 'data', 'end', 'error', 'timeout']) socket.removeAllListeners(event);
  socket.on('error', () => undefined);
  socket.destroy();
}

interface Broker {
  joinGroup(request: unknown): Promise<unknown>;
  syncGroup(request: unknown): Promise<unknown>;
}

/**
 * The coordinator of a group refuses joins while it reads what it knows of its groups, as after each start of its broker
 * and each election. kafkajs ends the consumer for that, or goes on in the generation before, though it asks again when a
 * broker says that it is not the coordinator: so this is told as that.
 */
function joinWhenLoaded(): void {
  const broker = loadFromKafkajs<{ readonly prototype?: Broker }>('broker/index.js')?.prototype;
  if (typeof broker?.joinGroup !== 'function' || typeof broker.syncGroup !== 'function') return;
  for (const name of ['joinGroup', 'syncGroup'] as const) {
    const call = broker[name];
    broker[name] = async function (this: Broker, request: unknown) {
      try {
        return await call.call(this, request);
      } catch (error) {
        const isLoading = (error as { type?: unknown }).type === 'GROUP_LOAD_IN_PROGRESS';
        throw isLoading ? Object.assign(error as Error, { type: 'NOT_COORDINATOR_FOR_GROUP' }) : error;
      }
    };
  }
}

function inTime(connected: Promise<boolean>): Promise<boolean> {
  return new Promise((resolve, reject) => {
    const late = () => reject(new kafkajs.KafkaJSConnectionError('Connection timeout'));
    const timer = setTimeout(late, CONNECT_TIMEOUT_MS);
    connected.then(resolve, reject).finally(() => clearTimeout(timer));
  });
}
