import { basename, join } from 'node:path';
import { cacheDir } from '../dev/paths.ts';
import { buildGoProgram, type GoProgram, goModuleFiles, pinnedGoProgram } from './go-program.ts';
import { ensureTools, type Log } from './toolchain.ts';

const HELM: GoProgram = {
  name: 'helm',
  folder: 'helm',
  module: 'helm.sh/helm/v4',
  main: 'helm.sh/helm/v4/cmd/helm',
  isQuick: true,
};
const API_SERVER: GoProgram = {
  name: 'kube-apiserver',
  folder: 'kubernetes',
  module: 'k8s.io/kubernetes',
  main: 'k8s.io/kubernetes/cmd/kube-apiserver',
  versionVariable: 'k8s.io/component-base/version.gitVersion',
  isQuick: true,
};

/** The definitions of what other operators add to Kubernetes. */
const ADDED = [
  {
    module: 'github.com/prometheus-operator/prometheus-operator',
    version: '0.85.0',
    files: ['servicemonitors', 'prometheusrules'].map(
      (name) => `example/prometheus-operator-crd/monitoring.coreos.com_${name}.yaml`,
    ),
  },
  {
    module: 'github.com/kedacore/keda/v2',
    version: '2.21.0',
    files: ['config/crd/bases/keda.sh_scaledobjects.yaml'],
  },
  {
    module: 'sigs.k8s.io/gateway-api',
    version: '1.3.0',
    files: ['config/crd/standard/gateway.networking.k8s.io_httproutes.yaml'],
  },
];

async function install(program: GoProgram, log: Log): Promise<string> {
  await ensureTools(['go'], { env: process.env, log });
  return buildGoProgram(program, process.env, { cache: cacheDir(process.env), log });
}

/** The path of helm. Its first build takes some minutes of two cores. */
export const installHelm = (log: Log): Promise<string> => install(HELM, log);

/** The path of Kubernetes' API server. Its first build takes some minutes of two cores. */
export const installApiServer = (log: Log): Promise<string> => install(API_SERVER, log);

/**
 * The paths of Kubernetes' OpenAPI description, of the API server's version, and of the definitions that operators add.
 */
export async function downloadSchemas(
  log: Log,
): Promise<{ readonly openApi: string; readonly added: readonly string[] }> {
  await ensureTools(['go'], { env: process.env, log });
  const options = { cache: cacheDir(process.env), log };
  const { module } = API_SERVER;
  const { version } = pinnedGoProgram(API_SERVER);
  const own = { module, version, files: ['api/openapi-spec/swagger.json'] };
  const openApi = join(await goModuleFiles(own, process.env, options), 'swagger.json');
  const added: string[] = [];
  for (const one of ADDED) {
    const dir = await goModuleFiles(one, process.env, options);
    added.push(...one.files.map((file) => join(dir, basename(file))));
  }
  return { openApi, added };
}
