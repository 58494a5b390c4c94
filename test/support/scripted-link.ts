import type { ApiName, BrokerLink, RequestOf, ResponseOf } from '../../src/kafka/wire/port.ts';

/** A test's answer to a call. */
export type Answer<A extends ApiName> = (request: RequestOf<A>) => Promise<ResponseOf<A>>;

export type Answers = { readonly [A in ApiName]?: Answer<A> };

/** A connection with scripted answers; a missing one is a bug of the test. */
export function scriptedLink(answers: Answers): BrokerLink {
  return {
    ended: new Promise(() => undefined),
    close: () => undefined,
    call: async (api, request) => {
      const answer = answers[api];
      if (answer === undefined) throw new TypeError(`the test has no answer to ${api}`);
      return answer(request);
    },
  };
}
