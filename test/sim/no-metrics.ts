import type { Metrics } from '../../src/metrics/metrics.ts';

const nothing = (): void => {};

/** Counts nothing. */
export const NO_METRICS: Metrics = {
  addIds: nothing,
  addNumbers: nothing,
  addSwap: nothing,
  addSequenceLoss: nothing,
  addRequests: nothing,
  addReplies: nothing,
  addDeadLetters: nothing,
  addForwarded: nothing,
  addForeignOffset: nothing,
  addLedgerLoss: nothing,
  addDeferred: nothing,
  addQuotaExceeded: nothing,
  addError: nothing,
  setGate: nothing,
  setLeaseMargin: nothing,
  setCeilingMargin: nothing,
  setClockDrift: nothing,
  observeBatch: nothing,
  observeStep: nothing,
  observeEtcdCall: nothing,
  setLag: nothing,
  addHttpRequest: nothing,
  observeHttpLedger: nothing,
  addShedConnection: nothing,
  render: async () => ({ contentType: '', body: '' }),
};
