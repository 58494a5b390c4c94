import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Future;
import java.util.regex.Pattern;
import java.util.stream.LongStream;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericRecord;
import org.apache.avro.message.BinaryMessageDecoder;
import org.apache.avro.message.BinaryMessageEncoder;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Requests IDs, or numbers of a sequence, with Apache Kafka's own client and prints a line for each correlation ID:
 * Requester [--no-key] [--sequence=NAME] BROKERS REQUEST_TOPIC REPLY_TOPIC COUNT SCHEMAS_DIRECTORY [CORRELATION_ID...]
 *
 * The default partitioner hashes the key, so the correlation ID as the key, or the name of the sequence, sends a request to
 * its home partition. Without a key the IDs are the same, but a worker must forward the request.
 */
public class Requester {
  private static final Duration TIMEOUT = Duration.ofSeconds(60);
  private static final String SEQUENCE = "--sequence=";
  /** Where a sequence's format has the number: {number}, or {number:6} for at least six digits. */
  private static final Pattern PLACE = Pattern.compile("\\{number(?::(\\d+))?\\}");

  private final String brokers;
  private final String requestTopic;
  private final String replyTopic;
  private final long count;
  private final Path schemas;
  private final boolean withKey;
  /** Null for IDs. */
  private final String sequence;

  private Requester(List<String> args, boolean withKey, String sequence) {
    brokers = args.get(0);
    requestTopic = args.get(1);
    replyTopic = args.get(2);
    count = Long.parseLong(args.get(3));
    schemas = Path.of(args.get(4));
    this.withKey = withKey;
    this.sequence = sequence;
  }

  public static void main(String[] arguments) throws Exception {
    var args = new ArrayList<>(Arrays.asList(arguments));
    var withKey = !args.remove("--no-key");
    var options = args.stream().filter(arg -> arg.startsWith(SEQUENCE)).toList();
    args.removeAll(options);
    var sequence = options.isEmpty() ? null : options.get(0).substring(SEQUENCE.length());
    if (args.size() < 5) {
      System.err.println("usage: Requester [--no-key] [--sequence=NAME]"
          + " BROKERS REQUEST_TOPIC REPLY_TOPIC COUNT SCHEMAS_DIRECTORY [CORRELATION_ID...]");
      System.exit(2);
    }
    var named = args.subList(5, args.size());
    if (sequence != null && named.isEmpty()) {
      System.err.println("name the correlation ID, best that of the document: another one takes other numbers");
      System.exit(2);
    }
    var ids = named.isEmpty() ? List.of(UUID.randomUUID().toString()) : named;
    new Requester(args, withKey, sequence).request(ids);
  }

  /** Reads from where the reply topic ends before a request is sent, so no reply can be missed. */
  private void request(List<String> ids) throws Exception {
    Map<String, Object> settings = Map.of("bootstrap.servers", brokers);
    var bytes = new ByteArrayDeserializer();
    try (var consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
      var partitions = consumer.partitionsFor(replyTopic).stream()
          .map(about -> new TopicPartition(about.topic(), about.partition())).toList();
      if (partitions.isEmpty()) throw new IllegalArgumentException("topic " + replyTopic + " does not exist");
      consumer.assign(partitions);
      consumer.seekToEnd(partitions);
      partitions.forEach(consumer::position);
      send(settings, ids);
      receive(consumer, new LinkedHashSet<>(ids));
    }
  }

  private void send(Map<String, Object> settings, List<String> ids) throws Exception {
    var value = encode();
    var trace = System.getenv("TRACEPARENT");
    var bytes = new ByteArraySerializer();
    try (var producer = new KafkaProducer<>(settings, bytes, bytes)) {
      var sent = new ArrayList<Future<RecordMetadata>>();
      for (var id : ids) {
        var correlationId = id.getBytes(StandardCharsets.UTF_8);
        var key = sequence == null ? correlationId : sequence.getBytes(StandardCharsets.UTF_8);
        var record = new ProducerRecord<>(requestTopic, withKey ? key : null, value);
        record.headers().add("kafka_correlationId", correlationId);
        record.headers().add("kafka_replyTopic", replyTopic.getBytes(StandardCharsets.UTF_8));
        // A reply has the trace headers of its request.
        if (trace != null) record.headers().add("traceparent", trace.getBytes(StandardCharsets.UTF_8));
        sent.add(producer.send(record));
      }
      for (var one : sent) one.get();
    }
  }

  private void receive(KafkaConsumer<byte[], byte[]> consumer, Set<String> waiting) throws Exception {
    // Numbers have a schema of their own, IDs and errors the first one. A value names its schema.
    var decoder = new BinaryMessageDecoder<GenericRecord>(GenericData.get(), schema("id-reply-2"));
    decoder.addSchema(schema("id-reply"));
    var deadline = System.nanoTime() + TIMEOUT.toNanos();
    while (!waiting.isEmpty()) {
      if (System.nanoTime() > deadline) {
        throw new IllegalStateException(waiting.size() + " requests without a reply: is a worker running?");
      }
      for (var record : consumer.poll(Duration.ofSeconds(1))) {
        var id = new String(record.key(), StandardCharsets.UTF_8);
        // Other records are replies to other requesters, or repeated ones.
        if (waiting.remove(id)) System.out.println(id + " " + answerOf(decoder.decode(record.value())));
      }
    }
  }

  private byte[] encode() throws Exception {
    var schema = schema(sequence == null ? "id-request" : "id-request-2");
    var request = new GenericData.Record(schema);
    request.put("count", count);
    if (sequence != null) request.put("sequence", sequence);
    ByteBuffer bytes = new BinaryMessageEncoder<GenericRecord>(GenericData.get(), schema).encode(request);
    var value = new byte[bytes.remaining()];
    bytes.get(value);
    return value;
  }

  private Schema schema(String name) throws Exception {
    return new Schema.Parser().parse(schemas.resolve(name + ".avsc").toFile());
  }

  /** The IDs, or the numbers of a sequence as its format writes them. */
  private static List<?> answerOf(GenericRecord reply) {
    var result = (GenericRecord) reply.get("result");
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
