import type { Runtime, Timer } from '../../core/runtime.ts';
import { isLinkError, KafkaError, kafkaErrorCode } from './kafka-error.ts';

/** After this long without an answer the next broker is asked as well. */
const PATIENCE_MS = 500;

/**
 * Asks brokers a question that any of them can answer, one after the other and each once, and takes the first answer.
 * Rejects when all have failed, with a rejected login if there was one. Rejects immediately when a broker answers with a
 * Kafka error, and when the cluster is closed.
 */
export function firstAnswer<B, T>(runtime: Runtime, brokers: readonly B[], ask: (broker: B) => Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    let asked = 0;
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
      else if (failed === asked) next();
    };
    const next = () => {
      timer?.cancel();
      const broker = brokers[asked];
      if (isSettled || broker === undefined) return;
      asked += 1;
      timer = runtime.schedule(PATIENCE_MS, next);
      ask(broker).then((answer) => {
        if (!isSettled) settle(() => resolve(answer));
      }, fail);
    };
    if (brokers.length === 0) reject(worst);
    else next();
  });
}
