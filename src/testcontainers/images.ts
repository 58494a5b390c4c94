/** The default images. The worker's is built from a checkout: see ops/Dockerfile. */
export const DEFAULT_IMAGES = {
  kafka: 'apache/kafka:4.1.1',
  etcd: 'quay.io/coreos/etcd:v3.7.3',
  worker: 'idalloc:local',
} as const;
