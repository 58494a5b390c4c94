import type { Letter, ReplyRecord, SentRequest } from './history.ts';

type Content = Pick<SentRequest, 'correlationId' | 'triedAs' | 'sequence' | 'count' | 'replyTopic' | 'expiresAtMs'>;
type Sending = Pick<ReplyRecord, 'sent' | 'landed'>;

/**
 * Answers by the content of their requests: of equal requests that are read together only one gets an answer. A refusal
 * answers only those that expire at the same time as well. The partition does not matter: a request that was forwarded
 * is in two, and its answer does not say which one was read.
 */
export class EqualRequests {
  readonly #answers = new Map<string, Sending[]>();

  replied(to: Content, { reply, ...sending }: Sending & Pick<ReplyRecord, 'reply'>): void {
    this.#add('error' in reply ? refusalName(to) : batchName(to), sending);
  }

  dropped(request: Content, { code, ...sending }: Sending & Pick<Letter, 'code'>): void {
    this.#add(code === 'REPLY_UNDELIVERABLE' ? batchName(request) : refusalName(request), sending);
  }

  /** Whether the answer to an equal request was sent after this one could be read, and landed by `until`. */
  answers(request: Content & Pick<SentRequest, 'order'>, until = Number.POSITIVE_INFINITY): boolean {
    const answers = [batchName(request), refusalName(request)].flatMap((name) => this.#answers.get(name) ?? []);
    return answers.some(({ sent, landed }) => sent > request.order && landed <= until);
  }

  #add(name: string, { sent, landed }: Sending): void {
    this.#answers.set(name, [...(this.#answers.get(name) ?? []), { sent, landed }]);
  }
}

function batchName({ correlationId, triedAs, sequence, count, replyTopic }: Content): string {
  return [count, replyTopic, triedAs, correlationId, ...(sequence === undefined ? [] : [sequence])].join(' ');
}

function refusalName(content: Content): string {
  return `${batchName(content)} until ${content.expiresAtMs}`;
}
