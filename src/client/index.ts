export { expandIds, type IdBatch } from '../codec/id-batch.ts';
export type { Encoding } from '../codec/id-request.ts';
export type { HeaderNames } from '../codec/request-headers.ts';
export type { IdRange } from '../core/generator.ts';
export {
  type CustomLayout,
  customLayout,
  type DecodedId,
  decode,
  type ErrorCode,
  type FormKeys,
  type FormOptions,
  firstIdAt,
  format,
  formKeys,
  IdallocError,
  type IdForm,
  type Layout,
  type PresetName,
  parse,
  presetLayout,
} from '../ids/index.ts';
export type { KafkaOptions } from './access.ts';
export { IdClient } from './client.ts';
export type { ClientHooks } from './hooks.ts';
export type {
  IdSource,
  RequestedBatch,
  RequestOptions,
  Sequence,
  SequenceNumbers,
  SequenceTakeOptions,
  WaitForIds,
} from './id-source.ts';
export {
  exportToOpenTelemetry,
  exportToPrometheus,
  type OpenTelemetryMeter,
  type PrometheusLibrary,
  type PrometheusOptions,
  type PrometheusRegistry,
} from './metric-exports.ts';
export type { ClientMetrics, LatencySummary } from './metrics.ts';
export type { BufferOptions, IdClientOptions } from './options.ts';
export { RequestRefused } from './refusals.ts';
