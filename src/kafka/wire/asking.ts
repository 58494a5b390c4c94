import type { Runtime, Timer } from '../../core/runtime.ts';
import { faultOf, isLinkFault, KafkaFault } from './fault.ts';

/** A broker that has not answered for so long is not waited for alone: the next one is asked as well. */
const PATIENCE_MS = 500;

/**
 * What any broker can answer: asks one after the other, each of them once, and takes the first answer. Rejects when all
 * have failed, with the refusal of a login if there was one, and at once when a broker answers with an error of Kafka,
 * or when we are closed.
 */
export function firstAnswer<B, T>(runtime: Runtime, brokers: readonly B[], ask: (broker: B) => Promise<T>): Promise<T> {
  return new Promise<T>((resolve, reject) => {
    let asked = 0;
    let failed = 0;
    let isSettled = false;
    let timer: Timer | undefined;
    let worst: unknown = new KafkaFault('UNREACHABLE', 'there is no broker to ask');
    const settle = (how: () => void) => {
      isSettled = true;
      timer?.cancel();
      how();
    };
    const fail = (error: unknown) => {
      if (isSettled) return;
      failed += 1;
      if (faultOf(worst) !== 'LOGIN_REFUSED') worst = error;
      const fault = faultOf(error);
      if (fault === 'CLOSED' || !isLinkFault(fault)) settle(() => reject(error));
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
