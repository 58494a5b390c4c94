export { IdAllocContainer, StartedIdAllocContainer } from './container.ts';
export { IdAllocEnvironment } from './environment.ts';
export { type IdAllocTopics, StartedIdAllocEnvironment } from './started.ts';
