/**
 * kafkajs declares no types for its internal modules: kafkajs-modules.ts and the tables of APIs declare what is used.
 */
declare module 'kafkajs/src/*' {
  const module: unknown;
  export default module;
}
