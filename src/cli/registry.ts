import { openRegistry } from '../adapters/registry/schema-registry.ts';
import type { KafkaConfig } from '../config/config.ts';
import { describeError, IdallocError } from '../errors.ts';

export interface RegistryFault {
  readonly message: string;
  readonly fix: string;
}

/** Why requests in the registry's framing can't be served; undefined if they can, or without a registry. */
export async function registryFault(config: KafkaConfig): Promise<RegistryFault | undefined> {
  try {
    const missing = (await openRegistry(config.registry)?.missing(config.topics.requests)) ?? [];
    if (missing.length === 0) return undefined;
    return { message: `no schema of this version for ${missing.join(', ')}`, fix: 'idalloc topics init' };
  } catch (error) {
    if (!(error instanceof IdallocError)) throw error;
    return { message: describeError(error), fix: 'start it, or correct SCHEMA_REGISTRY_URL and its login' };
  }
}
