import type { Runtime, Timer } from '../../async/runtime.ts';
import { isLinkError, KafkaError, kafkaErrorCode } from './kafka-error.ts';

/** After this long without a response the next broker is called as well. */
const HEDGE_MS = 500;

/**
 * Sends a request that any broker can answer to one after the other, each once, and takes the first response.
 * Rejects when all have failed, with a rejected login if there was one. Rejects immediately when a broker answers with
 * a Kafka error, and when the cluster is closed.
 */
export function firstResponse<B, T>(
  runtime: Runtime,
  brokers: readonly B[],
  send: (broker: B) => Promise<T>,
): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    let sent = 0;
    let failed = 0;
    let isSettled = false;
    let timer: Timer | undefined;
    let worst: unknown = new KafkaError('UNREACHABLE', 'no broker is known');
    const settle = (how: () => void) => {
      isSettled = true;
      timer?.cancel();
      how();
    };
    const fail = (error: unknown) => {
      if (isSettled) return;
      failed += 1;
      if (kafkaErrorCode(worst) !== 'LOGIN_REFUSED') worst = error;
      const errorCode = kafkaErrorCode(error);
      if (errorCode === 'CLOSED' || !isLinkError(errorCode)) settle(() => reject(error));
      else if (failed === brokers.length) settle(() => reject(worst));
      else if (failed === sent) next();
    };
    const next = () => {
      timer?.cancel();
      const broker = brokers[sent];
      if (isSettled || broker === undefined) return;
      sent += 1;
      timer = runtime.schedule(HEDGE_MS, next);
      send(broker).then((response) => {
        if (!isSettled) settle(() => resolve(response));
      }, fail);
    };
    if (brokers.length === 0) reject(worst);
    else next();
  });
}
