export { IdClient, type IdClientOptions } from '../client/index.ts';
export { type IdallocHealth, IdallocHealthIndicator } from './health.ts';
export { IdallocModule } from './module.ts';
