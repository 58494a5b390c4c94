import type { Kafka, KafkaMessage } from 'kafkajs';

type Listener = (event: { payload: { error: Error } }) => void;

export interface FakeConsumer {
  readonly groupId: string;
  readonly seeks: string[];
  left: boolean;
  /** kafkajs tells of something that happened to it. */
  tell(name: string, error?: Error): void;
  deliver(offset: number, message?: Partial<KafkaMessage>): Promise<void>;
}

export interface Send {
  readonly topic: string;
  readonly acks: number;
  readonly messages: readonly { readonly key: Buffer; readonly value: Buffer; readonly headers: object }[];
}

/** What of kafkajs the client uses; nothing is joined or delivered unless the test says so. */
export class FakeKafka {
  readonly consumers: FakeConsumer[] = [];
  readonly sends: Send[] = [];
  topics = ['id.requests', 'id.replies.a'];
  /** What each new consumer does when it is run; it counts as started once this has ended. */
  onRun: (consumer: FakeConsumer) => void | Promise<void> = (consumer) => consumer.tell('consumer.group_join');
  refuse: Error | undefined;
  leaderless = false;
  /** What each record waits for before it is taken. */
  taken: Promise<void> = Promise.resolve();
  /** The producer has left, and how many records were under way then. */
  producerLeft: number | undefined;
  #under = 0;

  get kafka(): Kafka {
    return this as unknown as Kafka;
  }

  admin() {
    return {
      connect: async () => undefined,
      disconnect: async () => undefined,
      listTopics: async () => this.topics,
      fetchTopicOffsets: async () => [
        { partition: 0, offset: '5', high: '5', low: '0' },
        { partition: 1, offset: '9', high: '9', low: '2' },
      ],
    };
  }

  producer() {
    return {
      connect: async () => undefined,
      disconnect: async () => {
        this.producerLeft = this.#under;
      },
      send: async (sent: Send) => {
        if (this.refuse !== undefined) throw this.refuse;
        this.#under += 1;
        await this.taken;
        this.#under -= 1;
        this.sends.push(sent);
        return this.leaderless ? [] : [{ topicName: sent.topic, partition: 0, errorCode: 0 }];
      },
    };
  }

  consumer({ groupId }: { groupId: string }) {
    const listeners = new Map<string, Listener>();
    let each: (payload: { message: KafkaMessage }) => Promise<void> = async () => undefined;
    const fake: FakeConsumer = {
      groupId,
      seeks: [],
      left: false,
      tell: (name, error = new Error(name)) => listeners.get(name)?.({ payload: { error } }),
      deliver: (offset, message) => each({ message: { offset: String(offset), ...message } as KafkaMessage }),
    };
    this.consumers.push(fake);
    let starting = false;
    return {
      on: (name: string, listener: Listener) => listeners.set(name, listener),
      connect: async () => {
        if (this.refuse !== undefined) throw this.refuse;
      },
      subscribe: async () => undefined,
      seek: ({ partition, offset }: { partition: number; offset: string }) => fake.seeks.push(`${partition}@${offset}`),
      run: async ({ eachMessage }: { eachMessage: typeof each }) => {
        each = eachMessage;
        starting = true;
        await this.onRun(fake);
        starting = false;
      },
      disconnect: async () => {
        // kafkajs can't end a consumer that is starting: it stays in its group, with all that keeps a process going.
        if (!starting) fake.left = true;
      },
    };
  }
}
