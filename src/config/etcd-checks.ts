import type { EtcdTls } from '../adapters/etcd/member.ts';
import type { Secret } from '../core/secret.ts';
import type { ConfigErrors } from './parse.ts';
import type { WorkerValues } from './variables.ts';

export function etcdAuthOf(
  values: WorkerValues,
  errors: ConfigErrors,
): { username: string; password: Secret } | undefined {
  const { ETCD_USERNAME: username, ETCD_PASSWORD: password } = values;
  errors.ifValid(['ETCD_USERNAME', 'ETCD_PASSWORD', 'ETCD_PASSWORD_FILE'], () =>
    errors.requireBothOrNeither({ ETCD_USERNAME: username, ETCD_PASSWORD: password }),
  );
  return username === undefined || password === undefined ? undefined : { username, password };
}

/** TLS settings for etcd; undefined when none is set. */
export function etcdTlsOf(values: WorkerValues, errors: ConfigErrors): EtcdTls | undefined {
  const { ETCD_CA: ca, ETCD_CERT: cert, ETCD_KEY: key, ETCD_ENDPOINTS: endpoints } = values;
  const names = ['ETCD_CA', 'ETCD_CERT', 'ETCD_KEY'].flatMap((name) => [name, `${name}_FILE`]);
  errors.ifValid(names, () => errors.requireBothOrNeither({ ETCD_CERT: cert, ETCD_KEY: key }));
  const isUsed = [ca, cert, key].some((one) => one !== undefined);
  errors.ifValid([...names, 'ETCD_ENDPOINTS'], () => {
    const isPlain = isUsed && endpoints.some((endpoint) => !endpoint.startsWith('https://'));
    if (isPlain) errors.add('ETCD_ENDPOINTS', 'must all start with https:// when ETCD_CA or ETCD_CERT is set');
  });
  if (!isUsed) return undefined;
  return { ca, clientCertificate: cert && key && { cert, key } };
}
