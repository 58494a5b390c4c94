import type { TimeStep } from '../ledger/ledger-ports.ts';
import type { Intake } from './intake.ts';
import type { Delivery, OutgoingRecord, Publisher } from './ports.ts';
import type { PartTrace } from './trace.ts';

export interface PublishDeps {
  readonly publisher: Publisher;
  readonly timeStep: TimeStep;
}

type Undelivered<T> = Extract<Delivery, { readonly ok: false }> & { readonly item: T };

/** Publishes the record of each item. Resolves to the items whose records were rejected, in order, with the reasons. */
export async function publish<T>(
  { publisher, timeStep }: PublishDeps,
  step: Parameters<TimeStep>[0],
  partition: number,
  items: readonly T[],
  recordOf: (item: T) => OutgoingRecord,
): Promise<Undelivered<T>[]> {
  if (items.length === 0) return [];
  const deliveries = await timeStep(step, () => publisher.publish(items.map(recordOf), partition));
  return items.flatMap((item, i) => {
    const delivery = deliveries[i];
    return delivery === undefined || delivery.ok ? [] : [{ ...delivery, item }];
  });
}

/** Publishes as `publish` does, as a step in the traces of the requests that get the records. */
export async function publishAnswers<T extends { readonly intake: Intake }>(
  deps: PublishDeps & { readonly trace: PartTrace },
  step: 'reply' | 'forward',
  partition: number,
  items: readonly T[],
  recordOf: (item: T) => OutgoingRecord,
): Promise<Undelivered<T>[]> {
  if (items.length === 0) return [];
  const requests = () => items.map(({ intake }) => intake.record);
  return deps.trace.step(step, requests, () => publish(deps, step, partition, items, recordOf));
}
