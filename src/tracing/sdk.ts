import * as api from '@opentelemetry/api';
import { describeError, IdallocError } from '../errors.ts';
import { hasProvider } from './provider.ts';

/** The variables of the process. */
export type OtelVariables = Readonly<Record<string, string | undefined>>;

/** The parts of the SDK that are used here. It is the operator's: see `PACKAGE`. */
export interface SdkModule {
  readonly NodeSDK: new (configuration: {
    readonly serviceName?: string;
    readonly metricReaders: never[];
    readonly logRecordProcessors: never[];
  }) => { start(): void; shutdown(): Promise<void> };
}

/** It brings 50 packages that only traces need. A variable, so that bundlers leave the import alone. */
const PACKAGE = '@opentelemetry/sdk-node';
/** It has to be made for the same version of the API as this worker. */
const INSTALL = `npm install ${PACKAGE}@0.301`;
export const loadSdk = async (): Promise<SdkModule> => await import(PACKAGE);

/** Whether the variables ask for traces: with an exporter, or an address to export to. */
export function wantsSdk(env: OtelVariables): boolean {
  if (env.OTEL_SDK_DISABLED?.trim().toLowerCase() === 'true') return false;
  const exporters = env.OTEL_TRACES_EXPORTER?.split(',').map((name) => name.trim()) ?? [];
  if (exporters.includes('none')) return false;
  const places = [env.OTEL_EXPORTER_OTLP_ENDPOINT, env.OTEL_EXPORTER_OTLP_TRACES_ENDPOINT];
  return [...exporters, ...places].some((value) => value !== undefined && value !== '');
}

/**
 * Starts the SDK as the variables say. Returns what flushes and ends it.
 *
 * @throws IdallocError CONFIG_INVALID if it is not installed, can't be started, or has no exporter.
 */
export async function startSdk(env: OtelVariables, load: () => Promise<SdkModule>): Promise<() => Promise<void>> {
  const wanted = 'OTEL_TRACES_EXPORTER or OTEL_EXPORTER_OTLP_ENDPOINT asks for traces';
  const { NodeSDK } = await load().catch((error: unknown) => {
    const isMissing = (error as { code?: unknown }).code === 'ERR_MODULE_NOT_FOUND';
    const cause = isMissing ? 'is not installed' : `can't be loaded (${describeError(error)})`;
    const message = `${wanted}, but ${PACKAGE} ${cause}: ${INSTALL} beside idalloc, build the image with TRACES=1, or set OTEL_SDK_DISABLED=true`;
    throw new IdallocError('CONFIG_INVALID', message, { cause: error });
  });
  const isNamed = Boolean(env.OTEL_SERVICE_NAME) || env.OTEL_RESOURCE_ATTRIBUTES?.includes('service.name=') === true;
  // Metrics are for Prometheus, and logs go to stdout.
  const only = { metricReaders: [], logRecordProcessors: [] };
  try {
    const sdk = new NodeSDK(isNamed ? only : { serviceName: 'idalloc', ...only });
    sdk.start();
    if (hasProvider(api)) return () => sdk.shutdown();
  } catch (error) {
    const message = `${PACKAGE} can't be started with the OTEL_* variables: ${describeError(error)}`;
    throw new IdallocError('CONFIG_INVALID', message, { cause: error });
  }
  const message = `${wanted}, but ${PACKAGE} exports none: check OTEL_TRACES_EXPORTER, or use the version of ${INSTALL}`;
  throw new IdallocError('CONFIG_INVALID', message);
}
