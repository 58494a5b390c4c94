/** For a worker whose memory is measured: `node --expose-gc --import` this, and SIGUSR2 collects its garbage. */
process.on('SIGUSR2', () => {
  (globalThis as { readonly gc?: () => void }).gc?.();
});
