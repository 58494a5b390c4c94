import type { Socket } from 'node:net';
import type { ConnectionOptions as TlsOptions } from 'node:tls';
import errorClassesModule from 'kafkajs/src/errors.js';
import connectionModule from 'kafkajs/src/network/connection.js';
import socketFactoryModule from 'kafkajs/src/network/socketFactory.js';
import decoderModule from 'kafkajs/src/protocol/decoder.js';
import encoderModule from 'kafkajs/src/protocol/encoder.js';
import errorModule from 'kafkajs/src/protocol/error.js';
import requestsModule from 'kafkajs/src/protocol/requests/index.js';
import type { ConnectionConfig, SocketFactory } from './connection-config.ts';

/**
 * The internal modules of kafkajs 2.2.4 that are used here, declared with the few members that are used. The version is
 * pinned, so they stay where they are. None of them is changed. They are imported statically, so that bundlers find
 * them.
 */
export const typed = <T>(module: unknown): T => module as T;

/** A request's API, by Kafka's number, and the version of it. */
export interface ApiVersion {
  readonly apiKey: number;
  readonly apiVersion: number;
}

/** A request of kafkajs, and the decoder of its response. */
export interface Protocol<Decoded> {
  readonly request: ApiVersion & { readonly apiName: string; encode(): Promise<Encoder> };
  readonly response: { decode(payload: Buffer): Promise<Decoded> };
}

export interface Encoder {
  writeInt8(value: number): this;
  writeInt16(value: number): this;
  writeInt32(value: number): this;
  writeInt64(value: number): this;
  writeBoolean(value: boolean): this;
  writeString(value: string | null): this;
  writeBytes(value: Buffer | null): this;
  writeUVarInt(value: number): this;
  writeUVarIntString(value: string | null): this;
  /** How many bytes were written. */
  size(): number;
  /** What was written. */
  readonly buffer: Buffer;
}

export const Encoder = typed<new (initialBytes?: number) => Encoder>(encoderModule);

export interface Decoder {
  readInt16(): number;
  readInt32(): number;
  readInt64(): bigint;
  readString(): string | null;
  /** A view; shorter than requested at the end of the response. */
  readBytes(bytes: number): Buffer;
  readArray<T>(read: (decoder: Decoder) => T): T[];
  readUVarIntString(): string | null;
  readUVarIntArray<T>(read: (decoder: Decoder) => T): T[] | null;
  /** Reads past them. */
  readTaggedFields(): unknown;
}

export const Decoder = typed<new (bytes: Buffer) => Decoder>(decoderModule);

export interface InnerLogger {
  namespace(name: string): InnerLogger;
  debug(message: string, fields?: object): void;
  info(message: string, fields?: object): void;
  warn(message: string, fields?: object): void;
  error(message: string, fields?: object): void;
}

/** What a connection needs of the table of its pending requests. */
export interface RequestQueue {
  push(pushed: { readonly entry: Entry; readonly sendRequest: () => void }): void;
  fulfillRequest(answer: { readonly correlationId: number; readonly payload: Buffer; readonly size: number }): void;
  rejectAll(error: Error): void;
  waitForPendingRequests(): Promise<void>;
  maybeThrottle(throttleMs: number | undefined): void;
  scheduleRequestTimeoutCheck(): void;
  destroy(): void;
}

export interface Entry {
  readonly correlationId: number;
  resolve(answer: { correlationId: number; entry: Entry; size: number; payload: Buffer }): void;
  reject(error: Error): void;
}

interface InnerConnectionOptions {
  readonly host: string;
  readonly port: number;
  readonly logger: InnerLogger;
  readonly socketFactory: SocketFactory;
  readonly ssl: TlsOptions | null;
  readonly sasl: ConnectionConfig['sasl'] | null;
  readonly clientId: string | null | undefined;
  readonly connectionTimeout: number;
  readonly requestTimeout: number;
  readonly enforceRequestTimeout: false;
}

export type ApiVersions = Readonly<Record<number, { readonly minVersion: number; readonly maxVersion: number }>>;

/** What kafkajs decodes of most responses. */
export interface Decoded {
  /** Milliseconds, in responses of versions whose throttle the client has to respect itself. */
  readonly clientSideThrottleTime?: number;
  /** The error of the whole response. */
  readonly errorCode?: number;
}

/** One of Kafka's APIs, in the versions that kafkajs has. */
interface ApiDefinition {
  readonly versions: readonly string[];
  protocol(of: { readonly version: number }): (options: object) => Protocol<Decoded>;
}

const kafkajs = typed<{
  /** By kafkajs' name of the API. */
  readonly requests: Readonly<Record<string, ApiDefinition>>;
  lookup(versions: ApiVersions): (apiKey: number, definition: ApiDefinition) => (options: object) => Protocol<Decoded>;
}>(requestsModule);

/** Finds the requests of an API in the newest version that both sides support. */
export const { lookup } = kafkajs;

/** kafkajs' requests of an API; throws for a name that it does not have. */
export function definitionOf(name: string): ApiDefinition {
  const definition = kafkajs.requests[name];
  if (definition === undefined) throw new TypeError(`kafkajs has no requests of ${name}`);
  return definition;
}

declare class KafkajsConnection {
  requestQueue: RequestQueue;
  sasl: ConnectionConfig['sasl'] | null;
  readonly clientId: string | null;
  socket: Socket | undefined;
  /** Milliseconds, as an object that prints as an integer; 0 for a session that does not expire. */
  readonly sessionLifetime: { toString(): string };
  /** How many milliseconds before its end a session is renewed. */
  reauthenticationThreshold: number;
  constructor(options: InnerConnectionOptions);
  connect(): Promise<unknown>;
  setVersions(versions: ApiVersions): void;
  setSupportAuthenticationProtocol(isSupported: boolean): void;
  /** The number of the next request. */
  nextCorrelationId(): number;
  isConnected(): boolean;
  isAuthenticated(): boolean;
  authenticate(): Promise<void>;
  protected processData(chunk: Buffer): void;
}

export const InnerConnection = typed<typeof KafkajsConnection>(connectionModule);

/** Sockets as kafkajs opens them: TLS with the host as server name unless that is an address. */
export const createSocketFactory = typed<() => SocketFactory>(socketFactoryModule);

export const { errorCodes } = typed<{
  readonly errorCodes: readonly { readonly type: string; readonly code: number; readonly message: string }[];
}>(errorModule);

/** The error of a response, with its name. */
interface ProtocolError extends Error {
  readonly type: string;
}

type ErrorClass<T extends Error = Error> = abstract new (...args: never) => T;

/** From their own module: kafkajs' main one loads its producer, consumer and admin as well. */
export const errorClasses = typed<{
  readonly KafkaJSSASLAuthenticationError: ErrorClass;
  readonly KafkaJSProtocolError: ErrorClass<ProtocolError>;
  readonly KafkaJSConnectionError: ErrorClass;
  readonly KafkaJSServerDoesNotSupportApiKey: ErrorClass;
}>(errorClassesModule);
