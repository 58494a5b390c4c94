/** kafkajs declares no types for its internal modules: kafkajs-modules.ts and kafkajs-requests.ts declare what is used. */
declare module 'kafkajs/src/*' {
  const module: unknown;
  export default module;
}
