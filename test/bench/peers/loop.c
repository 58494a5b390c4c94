/*
 * A peer of the throughput benchmark: librdkafka copies each record exactly once. Records and the offsets that they
 * advance to belong to one transaction, as in the loop in Java beside it.
 *
 * Arguments: brokers, topic to read, topic to write, group. It runs until SIGTERM, and exits with 1 after any error.
 */
#include <librdkafka/rdkafka.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum {
  COMMIT_EVERY_MS = 100,
  CALL_TIMEOUT_MS = 30000,
  FULL_PAUSE_MS = 5,
  MAX_RECORDS = 4000,
  MAX_PARTITIONS = 1024,
};

static volatile sig_atomic_t stopping = 0;

static void on_stop(int signal_number) {
  (void)signal_number;
  stopping = 1;
}

static void fail(const char *what, const char *why) {
  fprintf(stderr, "librdkafka loop: %s: %s\n", what, why);
  exit(1);
}

static void check(const char *what, rd_kafka_error_t *error) {
  if (error != NULL) fail(what, rd_kafka_error_string(error));
}

static void check_code(const char *what, rd_kafka_resp_err_t code) {
  if (code != RD_KAFKA_RESP_ERR_NO_ERROR) fail(what, rd_kafka_err2str(code));
}

static long long now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void set(rd_kafka_conf_t *conf, const char *name, const char *value) {
  char why[256];
  if (rd_kafka_conf_set(conf, name, value, why, sizeof why) != RD_KAFKA_CONF_OK) fail(name, why);
}

static rd_kafka_t *client(rd_kafka_type_t type, rd_kafka_conf_t *conf) {
  char why[256];
  rd_kafka_t *made = rd_kafka_new(type, conf, why, sizeof why);
  if (made == NULL) fail("a client", why);
  return made;
}

static rd_kafka_t *consumer_of(const char *brokers, const char *group, const char *source) {
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  set(conf, "bootstrap.servers", brokers);
  set(conf, "group.id", group);
  set(conf, "isolation.level", "read_committed");
  set(conf, "enable.auto.commit", "false");
  set(conf, "auto.offset.reset", "earliest");
  set(conf, "fetch.wait.max.ms", "100");
  /* By default it reads whole backlogs ahead, and what was read before the measurement would not count. */
  set(conf, "queued.min.messages", "2000");
  /* The worker and Java's client check them as well. */
  set(conf, "check.crcs", "true");
  rd_kafka_t *consumer = client(RD_KAFKA_CONSUMER, conf);
  check_code("poll set", rd_kafka_poll_set_consumer(consumer));
  rd_kafka_topic_partition_list_t *topics = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(topics, source, RD_KAFKA_PARTITION_UA);
  check_code("subscribe", rd_kafka_subscribe(consumer, topics));
  rd_kafka_topic_partition_list_destroy(topics);
  return consumer;
}

static rd_kafka_t *producer_of(const char *brokers, const char *group) {
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  set(conf, "bootstrap.servers", brokers);
  set(conf, "transactional.id", group);
  /* About 500 requests, the records of a worker's append. */
  set(conf, "batch.size", "80000");
  set(conf, "queue.buffering.max.messages", "1000000");
  /* As Java's client, kafkajs and the worker choose partitions. */
  set(conf, "partitioner", "murmur2_random");
  rd_kafka_t *producer = client(RD_KAFKA_PRODUCER, conf);
  check("init transactions", rd_kafka_init_transactions(producer, CALL_TIMEOUT_MS));
  return producer;
}

static void copy(rd_kafka_t *producer, const char *target, rd_kafka_message_t *record) {
  rd_kafka_headers_t *headers = NULL;
  rd_kafka_resp_err_t code = rd_kafka_message_detach_headers(record, &headers);
  if (code != RD_KAFKA_RESP_ERR_NO_ERROR && code != RD_KAFKA_RESP_ERR__NOENT) check_code("headers", code);
  if (headers == NULL) headers = rd_kafka_headers_new(0);
  for (;;) {
    code = rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(target), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                             RD_KAFKA_V_KEY(record->key, record->key_len), RD_KAFKA_V_VALUE(record->payload, record->len),
                             RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);
    if (code != RD_KAFKA_RESP_ERR__QUEUE_FULL) break;
    rd_kafka_poll(producer, FULL_PAUSE_MS);
  }
  check_code("produce", code);
}

/* The next offset of each partition that the open transaction has read from; 0 for the others. */
static int64_t next[MAX_PARTITIONS];

static void commit(rd_kafka_t *consumer, rd_kafka_t *producer, const char *source) {
  rd_kafka_topic_partition_list_t *offsets = rd_kafka_topic_partition_list_new(8);
  for (int partition = 0; partition < MAX_PARTITIONS; partition += 1) {
    if (next[partition] == 0) continue;
    rd_kafka_topic_partition_list_add(offsets, source, partition)->offset = next[partition];
    next[partition] = 0;
  }
  rd_kafka_consumer_group_metadata_t *group = rd_kafka_consumer_group_metadata(consumer);
  check("send offsets", rd_kafka_send_offsets_to_transaction(producer, offsets, group, CALL_TIMEOUT_MS));
  check("commit", rd_kafka_commit_transaction(producer, CALL_TIMEOUT_MS));
  rd_kafka_consumer_group_metadata_destroy(group);
  rd_kafka_topic_partition_list_destroy(offsets);
}

int main(int count, char **arguments) {
  if (count != 5) fail("arguments", "brokers, topic to read, topic to write, group");
  const char *brokers = arguments[1], *source = arguments[2], *target = arguments[3], *group = arguments[4];
  signal(SIGTERM, on_stop);
  rd_kafka_t *producer = producer_of(brokers, group);
  rd_kafka_t *consumer = consumer_of(brokers, group, source);
  rd_kafka_queue_t *queue = rd_kafka_queue_get_consumer(consumer);
  static rd_kafka_message_t *records[MAX_RECORDS];
  long long commit_at_ms = 0;
  int open = 0;
  while (!stopping) {
    long long left_ms = open ? commit_at_ms - now_ms() : COMMIT_EVERY_MS;
    ssize_t read = rd_kafka_consume_batch_queue(queue, left_ms > 0 ? (int)left_ms : 0, records, MAX_RECORDS);
    if (read < 0) check_code("consume", rd_kafka_last_error());
    for (ssize_t at = 0; at < read; at += 1) {
      rd_kafka_message_t *record = records[at];
      check_code("consume", record->err);
      if (record->partition >= MAX_PARTITIONS) fail("partitions", "too many");
      if (!open) {
        check("begin", rd_kafka_begin_transaction(producer));
        commit_at_ms = now_ms() + COMMIT_EVERY_MS;
        open = 1;
      }
      copy(producer, target, record);
      next[record->partition] = record->offset + 1;
      rd_kafka_message_destroy(record);
    }
    if (!open || now_ms() < commit_at_ms) continue;
    commit(consumer, producer, source);
    open = 0;
  }
  rd_kafka_queue_destroy(queue);
  rd_kafka_consumer_close(consumer);
  rd_kafka_destroy(consumer);
  rd_kafka_destroy(producer);
  return 0;
}
