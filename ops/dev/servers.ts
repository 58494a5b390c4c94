import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { tryLock } from './lock.mjs';
import { type ServersOptions, startOwnServers } from './own-servers.ts';
import { isRunning, ownIdentity, type ProcessIdentity } from './process-identity.mjs';

const POLL_MS = 200;
const OWNER_CHECK_MS = 500;
/** The owner may be downloading for the first time. */
const JOIN_TIMEOUT_MS = 30 * 60_000;

/** The servers that a worker of this checkout works with. */
export interface Servers {
  readonly brokers: string;
  readonly endpoints: string;
  /** 'environment' if KAFKA_BROKERS names the brokers; otherwise this checkout runs one. */
  readonly kafkaFrom: 'environment' | 'checkout';
  /** Another `npm start` runs them; when it ends, this one can take over. */
  readonly shared: boolean;
  /** Resolves with the reason when a server, or the process that runs it, ends. */
  readonly ended: Promise<string>;
  /** Tells `bin/idalloc` the variables with which its commands use these servers, if this process runs them. */
  offer(commands: Readonly<Record<string, string>>): void;
  /** Keeps other processes from joining. Call it before stopping the worker and then the servers. */
  retire(): void;
  /** Stops only what this process started. */
  stop(): Promise<void>;
}

const never = new Promise<string>(() => undefined);
/** What there is to do for servers that another process runs: nothing. */
const FOREIGN = { offer: () => undefined, retire: () => undefined, stop: async () => undefined };

/**
 * The servers named by KAFKA_BROKERS and ETCD_ENDPOINTS; others are started, or shared with the `npm start`
 * of this checkout that already runs them.
 */
export async function openServers(options: ServersOptions): Promise<Servers> {
  const { KAFKA_BROKERS: brokers, ETCD_ENDPOINTS: endpoints } = options.env;
  if (brokers && endpoints) {
    options.progress.say('servers: those of KAFKA_BROKERS and ETCD_ENDPOINTS');
    return { brokers, endpoints, kafkaFrom: 'environment', shared: false, ended: never, ...FOREIGN };
  }
  mkdirSync(options.stateDir, { recursive: true, mode: 0o700 });
  const file = join(options.stateDir, 'servers.json');
  const deadline = performance.now() + JOIN_TIMEOUT_MS;
  for (let reported = false; performance.now() < deadline; ) {
    const lock = tryLock(join(options.stateDir, 'servers.lock'));
    if (lock?.acquired) return own(options, file, lock.release);
    const ready = lock && readAnnouncement(file, lock.holder);
    if (ready) return share(ready, file, options);
    if (lock && !reported) {
      reported = true;
      options.progress.step(
        `another npm start of this checkout (process ${lock.holder.pid}) is starting or stopping; waiting`,
      );
    }
    await sleep(POLL_MS, undefined, { signal: options.signal });
  }
  throw new Error("another npm start of this checkout can't start its servers; stop it and try again");
}

async function own(options: ServersOptions, file: string, release: () => void): Promise<Servers> {
  try {
    withdraw(file);
    const servers = await startOwnServers(options);
    const announcement = { ...servers.started, owner: ownIdentity() };
    announce(file, announcement);
    return {
      brokers: options.env.KAFKA_BROKERS || servers.started.brokers || '',
      endpoints: options.env.ETCD_ENDPOINTS || servers.started.endpoints || '',
      kafkaFrom: options.env.KAFKA_BROKERS ? 'environment' : 'checkout',
      shared: false,
      ended: servers.ended,
      offer: (commands) => announce(file, { ...announcement, commands }),
      retire: () => withdraw(file),
      stop: async () => {
        withdraw(file);
        await servers.stop();
        release();
      },
    };
  } catch (error) {
    release();
    throw error;
  }
}

function share(theirs: Announcement, file: string, options: ServersOptions): Servers {
  const { pid } = theirs.owner;
  const brokers = options.env.KAFKA_BROKERS || theirs.brokers;
  const endpoints = options.env.ETCD_ENDPOINTS || theirs.endpoints;
  if (!brokers || !endpoints) {
    const lacks = brokers ? 'etcd, and ETCD_ENDPOINTS' : 'Kafka, and KAFKA_BROKERS';
    throw new Error(
      `the npm start of this checkout (process ${pid}) runs no ${lacks} is not set; set it, or stop that npm start`,
    );
  }
  options.progress.say(
    `another npm start of this checkout (process ${pid}) runs the servers; joining it as one more worker`,
  );
  let timer: NodeJS.Timeout | undefined;
  const ended = new Promise<string>((resolve) => {
    timer = setInterval(() => {
      if (isRunning(theirs.owner) && readAnnouncement(file, theirs.owner)) return;
      resolve(`the npm start that runs the servers (process ${pid}) is stopping`);
    }, OWNER_CHECK_MS);
  });
  const kafkaFrom = options.env.KAFKA_BROKERS ? 'environment' : 'checkout';
  const stop = async () => clearInterval(timer);
  return { ...FOREIGN, brokers, endpoints, kafkaFrom, shared: true, ended, stop };
}

/** What the `npm start` that runs the servers of this checkout announces to the others, once the servers are ready. */
export interface Announcement {
  readonly owner: ProcessIdentity;
  readonly brokers?: string | undefined;
  readonly endpoints?: string | undefined;
  /** The variables with which a command uses these servers, once they have their topics; see development.mjs. */
  readonly commands?: Readonly<Record<string, string>>;
}

/** The file appears with its whole content, or not at all. */
export function announce(file: string, announcement: Announcement): void {
  writeFileSync(`${file}.new`, JSON.stringify(announcement));
  renameSync(`${file}.new`, file);
}

/** Undefined without an announcement, or if its process exited without removing it. */
export function readAnnouncement(file: string, owner: ProcessIdentity): Announcement | undefined {
  if (!existsSync(file)) return undefined;
  const found = JSON.parse(readFileSync(file, 'utf8')) as Announcement;
  return found.owner.pid === owner.pid && found.owner.start === owner.start ? found : undefined;
}

export function withdraw(file: string): void {
  rmSync(file, { force: true });
}
