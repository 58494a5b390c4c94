import type { EtcdTls } from '../adapters/etcd/etcd.ts';
import type { Faults } from './parse.ts';
import type { WorkerValues } from './variables.ts';

export function etcdAuthOf(values: WorkerValues, faults: Faults): { username: string; password: string } | undefined {
  const { ETCD_USERNAME: username, ETCD_PASSWORD: password } = values;
  faults.across(['ETCD_USERNAME', 'ETCD_PASSWORD', 'ETCD_PASSWORD_FILE'], () => {
    if (username !== undefined && password === undefined) {
      faults.add('ETCD_PASSWORD', 'is required when ETCD_USERNAME is set');
    }
    if (username === undefined && password !== undefined) {
      faults.add('ETCD_USERNAME', 'is required when ETCD_PASSWORD is set');
    }
  });
  return username === undefined || password === undefined ? undefined : { username, password };
}

/** What is needed beside https:// in the endpoints, where it is. */
export function etcdTlsOf(values: WorkerValues, faults: Faults): EtcdTls | undefined {
  const { ETCD_CA: ca, ETCD_CERT: cert, ETCD_KEY: key, ETCD_ENDPOINTS: endpoints } = values;
  const names = ['ETCD_CA', 'ETCD_CERT', 'ETCD_KEY'].flatMap((name) => [name, `${name}_FILE`]);
  faults.across(names, () => {
    if (cert !== undefined && key === undefined) faults.add('ETCD_KEY', 'is required when ETCD_CERT is set');
    if (cert === undefined && key !== undefined) faults.add('ETCD_CERT', 'is required when ETCD_KEY is set');
  });
  const isUsed = [ca, cert, key].some((one) => one !== undefined);
  faults.across([...names, 'ETCD_ENDPOINTS'], () => {
    const isPlain = isUsed && endpoints.some((endpoint) => !endpoint.startsWith('https://'));
    if (isPlain) faults.add('ETCD_ENDPOINTS', 'must all start with https:// when ETCD_CA or ETCD_CERT is set');
  });
  if (!isUsed) return undefined;
  return {
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined || key === undefined ? {} : { own: { cert, key } }),
  };
}
