import type { BrokerLink } from '../../../src/kafka/wire/port.ts';
import type { Reply } from './group-member.ts';

/** The calls of the protocol, as the port has them. */
type Calls = Omit<BrokerLink, 'ended' | 'close'>;
export type CallName = keyof Calls;
export type RequestOf<C extends CallName> = Parameters<Calls[C]>[0];
export type AnswerOf<C extends CallName> = Awaited<ReturnType<Calls[C]>>;

/** A broker's handlers of the calls. `client` names the caller. */
export type Handlers = {
  readonly [C in CallName]: (request: RequestOf<C>, reply: Reply<AnswerOf<C>>, client: string) => void;
};
