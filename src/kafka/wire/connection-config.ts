import type { KafkaConfig } from 'kafkajs';

/** The part of kafkajs' configuration that concerns connections. */
export type ConnectionConfig = Pick<
  KafkaConfig,
  'clientId' | 'ssl' | 'sasl' | 'socketFactory' | 'reauthenticationThreshold'
>;
