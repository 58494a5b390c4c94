/** kafkajs declares no types for its internal modules: kafkajs-modules.ts declares what is used. */
declare module 'kafkajs/src/*' {
  const module: unknown;
  export default module;
}
