export { IdClient, type IdClientOptions } from '../client/index.ts';
export { type IdallocHealth, IdallocHealthIndicator } from './health.ts';
export { getIdsHealthToken, getIdsToken, IdallocModule, InjectIds, InjectIdsHealth } from './module.ts';
