// First, so that a Node that can't load testcontainers fails before it tries.
import './node-version.ts';

export { IdAllocContainer, StartedIdAllocContainer } from './container.ts';
export { IdAllocEnvironment } from './environment.ts';
export { type IdAllocTopics, StartedIdAllocEnvironment } from './started.ts';
