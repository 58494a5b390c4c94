export { expandIds, type IdBatch } from '../codec/id-batch.ts';
export type { Layout } from '../core/layout.ts';
export { type PresetName, presetLayout } from '../core/presets.ts';
export { type ErrorCode, IdallocError } from '../errors.ts';
export { IdClient, type RequestedBatch, type RequestOptions, type WaitForIds } from './client.ts';
export type { ClientHooks } from './hooks.ts';
export { type DecodedId, decode, firstIdAt, format, type IdForm, parse } from './ids.ts';
export type { BufferOptions, IdClientOptions, KafkaOptions } from './options.ts';
export { RequestRefused } from './requester.ts';
