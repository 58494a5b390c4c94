import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A peer of the throughput benchmark: Java's client copies each record exactly once. Records and the offsets that they
 * advance to belong to one transaction, as in Kafka Streams, and so does the time between two commits.
 *
 * Arguments: brokers, topic to read, topic to write, group. It runs until SIGTERM, and exits with 1 after any error.
 */
public final class Loop {
  private static final Duration COMMIT_EVERY = Duration.ofMillis(100);
  private static final Duration CLOSE_TIMEOUT = Duration.ofSeconds(3);
  /** About 500 requests, the records of a worker's append. */
  private static final int BATCH_BYTES = 80_000;

  private final KafkaConsumer<byte[], byte[]> consumer;
  private final KafkaProducer<byte[], byte[]> producer;
  private final String target;
  /** What the open transaction commits. */
  private final Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
  /** When the open transaction is to be committed; without records there is none. */
  private long commitAtNanos;
  private volatile boolean stopping;

  private Loop(String brokers, String target, String group) {
    consumer = new KafkaConsumer<>(consumerSettings(brokers, group), new ByteArrayDeserializer(), new ByteArrayDeserializer());
    producer = new KafkaProducer<>(producerSettings(brokers, group), new ByteArraySerializer(), new ByteArraySerializer());
    this.target = target;
  }

  public static void main(String[] args) {
    Loop loop = new Loop(args[0], args[2], args[3]);
    Thread main = Thread.currentThread();
    Runtime.getRuntime().addShutdownHook(new Thread(() -> loop.stop(main)));
    loop.run(args[1]);
  }

  private static Properties consumerSettings(String brokers, String group) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", brokers);
    settings.put("group.id", group);
    settings.put("isolation.level", "read_committed");
    settings.put("enable.auto.commit", "false");
    settings.put("auto.offset.reset", "earliest");
    settings.put("max.poll.records", "4000");
    settings.put("fetch.max.wait.ms", "100");
    return settings;
  }

  private static Properties producerSettings(String brokers, String group) {
    Properties settings = new Properties();
    settings.put("bootstrap.servers", brokers);
    settings.put("transactional.id", group);
    settings.put("batch.size", String.valueOf(BATCH_BYTES));
    settings.put("buffer.memory", String.valueOf(64 << 20));
    return settings;
  }

  private void run(String source) {
    producer.initTransactions();
    consumer.subscribe(List.of(source));
    try {
      while (!stopping) {
        copy(consumer.poll(untilCommit()));
        if (!offsets.isEmpty() && System.nanoTime() >= commitAtNanos) commit();
      }
    } catch (WakeupException stopped) {
      // What is not committed is not copied.
    }
    producer.close(CLOSE_TIMEOUT);
    consumer.close();
  }

  private Duration untilCommit() {
    if (offsets.isEmpty()) return COMMIT_EVERY;
    return Duration.ofNanos(Math.max(0, commitAtNanos - System.nanoTime()));
  }

  private void copy(ConsumerRecords<byte[], byte[]> records) {
    if (records.isEmpty()) return;
    if (offsets.isEmpty()) {
      producer.beginTransaction();
      commitAtNanos = System.nanoTime() + COMMIT_EVERY.toNanos();
    }
    for (ConsumerRecord<byte[], byte[]> one : records) {
      producer.send(new ProducerRecord<>(target, null, one.key(), one.value(), one.headers()));
    }
    for (TopicPartition partition : records.partitions()) {
      List<ConsumerRecord<byte[], byte[]>> its = records.records(partition);
      offsets.put(partition, new OffsetAndMetadata(its.get(its.size() - 1).offset() + 1));
    }
  }

  private void commit() {
    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    producer.commitTransaction();
    offsets.clear();
  }

  private void stop(Thread main) {
    stopping = true;
    consumer.wakeup();
    try {
      main.join(CLOSE_TIMEOUT.multipliedBy(2).toMillis());
    } catch (InterruptedException interrupted) {
      Thread.currentThread().interrupt();
    }
  }
}
