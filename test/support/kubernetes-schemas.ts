import { readFileSync } from 'node:fs';
import { Ajv } from 'ajv';
import { parse } from 'yaml';
import { downloadSchemas } from '../../ops/bare/kubernetes.ts';
import type { Manifest } from './chart-render.ts';
import { STRIMZI } from './strimzi-definitions.ts';

type Schema = { readonly [key: string]: unknown };

/** A CustomResourceDefinition, as far as it is used here. */
export interface Definition {
  readonly metadata: { readonly name: string };
  readonly spec: {
    readonly group: string;
    readonly names: { readonly kind: string };
    readonly versions: readonly { readonly name: string; readonly schema: { readonly openAPIV3Schema: Schema } }[];
  };
}

const FIELDS_OF_ALL = { apiVersion: { type: 'string' }, kind: { type: 'string' }, metadata: { type: 'object' } };
/** OpenAPI says that these are strings, and Kubernetes takes numbers as well. */
const LOOSE = ['io.k8s.apimachinery.pkg.util.intstr.IntOrString', 'io.k8s.apimachinery.pkg.api.resource.Quantity'];

/** The schema with no fields allowed but those that it names, as under `kubectl --validate=strict`. */
function strict(schema: unknown): unknown {
  if (Array.isArray(schema)) return schema.map(strict);
  if (typeof schema !== 'object' || schema === null) return schema;
  // Patterns are Go's; the API server checks them.
  const { description: _, format: __, pattern: ___, ...rest } = schema as Schema;
  const own = Object.fromEntries(Object.entries(rest).map(([key, value]) => [key, strict(value)]));
  const open =
    !('properties' in rest) || 'additionalProperties' in rest || rest['x-kubernetes-preserve-unknown-fields'];
  const isSchema = typeof rest.type === 'string' || '$ref' in rest;
  return isSchema && !open ? { ...own, additionalProperties: false } : own;
}

/** Validates manifests by the schemas of Kubernetes and of the operators whose kinds the chart has. */
export class KubernetesSchemas {
  readonly definitions: readonly Definition[];
  readonly #ajv = new Ajv({ strict: false, allErrors: true });

  private constructor(openApi: string, definitions: readonly Definition[]) {
    this.definitions = definitions;
    const swagger = JSON.parse(openApi) as { readonly definitions: Readonly<Record<string, Schema>> };
    const types = Object.entries(swagger.definitions);
    const all = Object.fromEntries(
      types.map(([name, schema]) => [name, LOOSE.includes(name) ? { type: ['string', 'number'] } : strict(schema)]),
    );
    this.#ajv.addSchema({ definitions: all }, 'urn:kubernetes:openapi');
    for (const [name, schema] of types) {
      const kinds = (schema['x-kubernetes-group-version-kind'] ?? []) as {
        group: string;
        version: string;
        kind: string;
      }[];
      const [only, another] = kinds;
      if (only === undefined || another !== undefined) continue;
      const apiVersion = [only.group, only.version].filter(Boolean).join('/');
      this.#ajv.addSchema({ $ref: `urn:kubernetes:openapi#/definitions/${name}` }, `${apiVersion} ${only.kind}`);
    }
    for (const { spec } of definitions) {
      for (const { name, schema } of spec.versions) {
        const { openAPIV3Schema: own } = schema;
        const properties = { ...(own.properties as Schema), ...FIELDS_OF_ALL };
        this.#ajv.addSchema(strict({ ...own, properties }) as Schema, `${spec.group}/${name} ${spec.names.kind}`);
      }
    }
  }

  static async load(): Promise<KubernetesSchemas> {
    const { openApi, added } = await downloadSchemas((line) => process.stderr.write(`chart: ${line}\n`));
    const ofOperators = added.map((path) => parse(readFileSync(path, 'utf8')) as Definition);
    return new KubernetesSchemas(readFileSync(openApi, 'utf8'), [...ofOperators, ...STRIMZI]);
  }

  /** What is wrong with a manifest, if anything. */
  problemsOf(manifest: Manifest): string[] {
    const kind = `${manifest.apiVersion} ${manifest.kind}`;
    const check = this.#ajv.getSchema(kind);
    if (check === undefined) return [`there is no schema of ${kind}`];
    if (check(manifest)) return [];
    return (check.errors ?? []).map(
      ({ instancePath, message, params }) => `${kind}${instancePath}: ${message} ${JSON.stringify(params)}`,
    );
  }
}
