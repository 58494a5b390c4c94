import type { ApiName, RequestOf, ResponseOf } from '../../../src/kafka/wire/port.ts';
import type { Reply } from './group-member.ts';

/** A broker's handler of an API. `client` names the caller. */
export type HandlerOf<A extends ApiName> = (request: RequestOf<A>, reply: Reply<ResponseOf<A>>, client: string) => void;

export type Handlers = { readonly [A in ApiName]: HandlerOf<A> };
