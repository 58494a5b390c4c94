/** Imported into a worker whose memory is measured (`node --expose-gc --import`): SIGUSR2 runs a garbage collection. */
process.on('SIGUSR2', () => {
  (globalThis as { readonly gc?: () => void }).gc?.();
});
