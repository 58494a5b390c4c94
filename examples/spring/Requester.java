import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.message.BinaryMessageDecoder;
import org.apache.avro.message.BinaryMessageEncoder;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.requestreply.ReplyingKafkaTemplate;
import org.springframework.kafka.support.TopicPartitionOffset;
import org.springframework.scheduling.concurrent.ThreadPoolTaskScheduler;

/**
 * Requests IDs with Spring's ReplyingKafkaTemplate and prints them, one per line:
 * Requester BROKERS REQUEST_TOPIC REPLY_TOPIC REPLY_PARTITION COUNT SCHEMAS_DIRECTORY
 *
 * The template sends kafka_correlationId (16 bytes), kafka_replyTopic and kafka_replyPartition (4 bytes), and matches the
 * reply by its correlation ID. This program only encodes the body, in Avro's single-object encoding.
 */
public class Requester {
  private static final Duration TIMEOUT = Duration.ofSeconds(30);

  public static void main(String[] args) throws Exception {
    if (args.length != 6) {
      System.err.println("usage: Requester BROKERS REQUEST_TOPIC REPLY_TOPIC REPLY_PARTITION COUNT SCHEMAS_DIRECTORY");
      System.exit(2);
    }
    var brokers = args[0];
    var requestTopic = args[1];
    var replies = new TopicPartition(args[2], Integer.parseInt(args[3]));
    var count = Long.parseLong(args[4]);
    var schemas = Path.of(args[5]);

    var producers = new DefaultKafkaProducerFactory<byte[], byte[]>(
        Map.of("bootstrap.servers", brokers), new ByteArraySerializer(), new ByteArraySerializer());
    var consumers = new DefaultKafkaConsumerFactory<byte[], byte[]>(
        Map.of("bootstrap.servers", brokers, "group.id", "requester-" + UUID.randomUUID()),
        new ByteArrayDeserializer(), new ByteArrayDeserializer());

    // One partition of the reply topic, from where it ends now: every instance of a service reads only its own.
    long end;
    try (var consumer = consumers.createConsumer()) {
      end = consumer.endOffsets(List.of(replies)).get(replies);
    }
    var settings = new ContainerProperties(new TopicPartitionOffset(replies.topic(), replies.partition(), end));
    var scheduler = new ThreadPoolTaskScheduler();
    scheduler.setDaemon(true); // outside an application context, Spring's own scheduler would keep this program running
    scheduler.initialize();
    settings.setScheduler(scheduler);
    var template = new ReplyingKafkaTemplate<byte[], byte[], byte[]>(
        producers, new KafkaMessageListenerContainer<byte[], byte[]>(consumers, settings));
    template.setTaskScheduler(scheduler);
    template.setSharedReplyTopic(true);
    template.setDefaultReplyTimeout(TIMEOUT);
    template.start();
    try {
      var request = new ProducerRecord<byte[], byte[]>(requestTopic, encode(count, schemas));
      ConsumerRecord<byte[], byte[]> reply =
          template.sendAndReceive(request).get(TIMEOUT.toSeconds(), TimeUnit.SECONDS);
      for (long id : decode(reply.value(), schemas)) System.out.println(id);
    } finally {
      template.stop();
      producers.destroy();
    }
  }

  private static byte[] encode(long count, Path schemas) throws Exception {
    var schema = new Schema.Parser().parse(schemas.resolve("id-request.avsc").toFile());
    var request = new GenericData.Record(schema);
    request.put("count", count);
    ByteBuffer bytes = new BinaryMessageEncoder<GenericRecord>(GenericData.get(), schema).encode(request);
    var value = new byte[bytes.remaining()];
    bytes.get(value);
    return value;
  }

  private static List<Long> decode(byte[] value, Path schemas) throws Exception {
    var schema = new Schema.Parser().parse(schemas.resolve("id-reply.avsc").toFile());
    var reply = new BinaryMessageDecoder<GenericRecord>(GenericData.get(), schema).decode(value);
    var result = (GenericRecord) reply.get("result");
    if (result.getSchema().getName().equals("IdError")) {
      throw new IllegalStateException(result.get("code") + ": " + result.get("message"));
    }
    var ids = new ArrayList<Long>();
    var step = (long) result.get("step");
    for (var element : (List<?>) result.get("ranges")) {
      var range = (GenericRecord) element;
      for (int i = 0; i < (int) range.get("count"); i++) ids.add((long) range.get("first") + i * step);
    }
    return ids;
  }
}
