type Api = Pick<typeof import('@opentelemetry/api'), 'trace' | 'ProxyTracerProvider'>;

/**
 * Whether spans have somewhere to go: an SDK is registered with the API, by us or by whoever started the process. It
 * may be with another copy of the API, whose provider is of another class.
 */
export function hasProvider({ trace, ProxyTracerProvider }: Api): boolean {
  const provider = trace.getTracerProvider();
  return !(provider instanceof ProxyTracerProvider) || provider.getDelegateTracer('idalloc') !== undefined;
}
