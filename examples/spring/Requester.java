import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.regex.Pattern;
import java.util.stream.LongStream;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.message.BinaryMessageDecoder;
import org.apache.avro.message.BinaryMessageEncoder;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.Banner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.ProducerFactory;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.KafkaMessageListenerContainer;
import org.springframework.kafka.requestreply.CorrelationKey;
import org.springframework.kafka.requestreply.KafkaReplyTimeoutException;
import org.springframework.kafka.requestreply.ReplyingKafkaTemplate;
import org.springframework.kafka.support.TopicPartitionOffset;

/**
 * Requests IDs, or numbers of a sequence, with Spring's ReplyingKafkaTemplate and prints them, one per line:
 * Requester BROKERS REQUEST_TOPIC REPLY_TOPIC REPLY_PARTITION COUNT SCHEMAS_DIRECTORY [REQUEST_ID [SEQUENCE]]
 *
 * The template sends kafka_correlationId, kafka_replyTopic and kafka_replyPartition (4 bytes), and matches the reply by its
 * correlation ID. This program only encodes the body, in Avro's single-object encoding.
 */
@SpringBootConfiguration(proxyBeanMethods = false)
@EnableAutoConfiguration
public class Requester {
  private static final String REQUEST_ID = "idalloc-request-id";
  private static final Duration TRY = Duration.ofSeconds(10);
  private static final int TRIES = 3;
  /** Where a sequence's format has the number: {number}, or {number:6} for at least six digits. */
  private static final Pattern PLACE = Pattern.compile("\\{number(?::(\\d+))?\\}");

  /** One partition of the reply topic, from where it ends now: every instance of a service reads only its own. */
  @Bean
  ReplyingKafkaTemplate<byte[], byte[], byte[]> template(
      ProducerFactory<byte[], byte[]> producers, ConsumerFactory<byte[], byte[]> consumers,
      @Value("${reply.topic}") String topic, @Value("${reply.partition}") int partition) {
    long end;
    var replies = new TopicPartition(topic, partition);
    try (var consumer = consumers.createConsumer()) {
      end = consumer.endOffsets(List.of(replies)).get(replies);
    }
    var settings = new ContainerProperties(new TopicPartitionOffset(topic, partition, end));
    var template = new ReplyingKafkaTemplate<byte[], byte[], byte[]>(
        producers, new KafkaMessageListenerContainer<byte[], byte[]>(consumers, settings));
    template.setSharedReplyTopic(true);
    template.setDefaultReplyTimeout(TRY);
    // Without it, the template invents a correlation ID for each send, and a retry gets another batch.
    template.setCorrelationIdStrategy(request -> {
      var own = request.headers().lastHeader(REQUEST_ID);
      return new CorrelationKey(own == null ? request.key() : own.value());
    });
    return template;
  }

  public static void main(String[] args) throws Exception {
    if (args.length < 6 || args.length > 8) {
      System.err.println("usage: Requester"
          + " BROKERS REQUEST_TOPIC REPLY_TOPIC REPLY_PARTITION COUNT SCHEMAS_DIRECTORY [REQUEST_ID [SEQUENCE]]");
      System.exit(2);
    }
    var requestId = (args.length > 6 ? args[6] : UUID.randomUUID().toString()).getBytes(StandardCharsets.UTF_8);
    var sequence = args.length > 7 ? args[7] : null;
    var schemas = Path.of(args[5]);
    var value = encode(Long.parseLong(args[4]), sequence, schemas);
    try (var context = application(args[0], args[2], args[3]).run()) {
      @SuppressWarnings("unchecked")
      ReplyingKafkaTemplate<byte[], byte[], byte[]> template = context.getBean(ReplyingKafkaTemplate.class);
      decode(ask(template, args[1], requestId, sequence, value), schemas).forEach(System.out::println);
    }
  }

  /** What a service has in its application.properties. */
  private static SpringApplication application(String brokers, String replyTopic, String replyPartition) {
    var application = new SpringApplication(Requester.class);
    application.setBannerMode(Banner.Mode.OFF);
    var serialization = "org.apache.kafka.common.serialization.ByteArray";
    application.setDefaultProperties(Map.of(
        "spring.kafka.bootstrap-servers", brokers,
        "spring.kafka.producer.key-serializer", serialization + "Serializer",
        "spring.kafka.producer.value-serializer", serialization + "Serializer",
        "spring.kafka.consumer.key-deserializer", serialization + "Deserializer",
        "spring.kafka.consumer.value-deserializer", serialization + "Deserializer",
        "spring.kafka.consumer.group-id", "requester-" + UUID.randomUUID(),
        "reply.topic", replyTopic, "reply.partition", replyPartition,
        "logging.level.root", "error"));
    return application;
  }

  /** The value of the reply. A try without one is repeated: the same request ID gets the same IDs. */
  private static byte[] ask(ReplyingKafkaTemplate<byte[], byte[], byte[]> template, String topic, byte[] requestId,
      String sequence, byte[] value) throws Exception {
    for (int left = TRIES - 1;; left--) {
      // The key leads to the partition that decides: the request ID, or the name of the sequence.
      var key = sequence == null ? requestId : sequence.getBytes(StandardCharsets.UTF_8);
      var request = new ProducerRecord<byte[], byte[]>(topic, key, value);
      request.headers().add(REQUEST_ID, requestId);
      try {
        return template.sendAndReceive(request).get().value();
      } catch (ExecutionException error) {
        if (left == 0 || !(error.getCause() instanceof KafkaReplyTimeoutException)) throw error;
      }
    }
  }

  private static byte[] encode(long count, String sequence, Path schemas) throws Exception {
    var schema = schema(schemas, sequence == null ? "id-request" : "id-request-2");
    var request = new GenericData.Record(schema);
    request.put("count", count);
    if (sequence != null) request.put("sequence", sequence);
    ByteBuffer bytes = new BinaryMessageEncoder<GenericRecord>(GenericData.get(), schema).encode(request);
    var value = new byte[bytes.remaining()];
    bytes.get(value);
    return value;
  }

  private static Schema schema(Path schemas, String name) throws Exception {
    return new Schema.Parser().parse(schemas.resolve(name + ".avsc").toFile());
  }

  /** The IDs, or the numbers of a sequence as its format writes them. */
  private static List<?> decode(byte[] value, Path schemas) throws Exception {
    // Numbers have a schema of their own, IDs and errors the first one. A value names its schema.
    var decoder = new BinaryMessageDecoder<GenericRecord>(GenericData.get(), schema(schemas, "id-reply-2"));
    decoder.addSchema(schema(schemas, "id-reply"));
    var result = (GenericRecord) decoder.decode(value).get("result");
    return switch (result.getSchema().getName()) {
      case "IdBatch" -> idsOf(result);
      case "SequenceBatch" -> textsOf(result);
      default -> throw new IllegalStateException(result.get("code") + ": " + result.get("message"));
    };
  }

  private static List<Long> idsOf(GenericRecord batch) {
    var ids = new ArrayList<Long>();
    for (var range : (List<?>) batch.get("ranges")) {
      expand((GenericRecord) range, (long) batch.get("step")).forEach(ids::add);
    }
    return ids;
  }

  private static List<String> textsOf(GenericRecord numbers) {
    var written = numbers.get("format").toString();
    var format = written.isEmpty() ? "{number}" : written;
    var place = PLACE.matcher(format);
    if (!place.find()) throw new IllegalStateException("the format " + format + " has no {number}");
    var digits = place.group(1) == null ? "%d" : "%0" + place.group(1) + "d";
    return expand(numbers, (long) numbers.get("step"))
        .mapToObj(number -> format.replace(place.group(), String.format(Locale.ROOT, digits, number))).toList();
  }

  /** first, first + step, ... */
  private static LongStream expand(GenericRecord run, long step) {
    return LongStream.range(0, (int) run.get("count")).map(i -> (long) run.get("first") + i * step);
  }
}
