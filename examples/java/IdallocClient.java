import static java.nio.charset.StandardCharsets.UTF_8;

import java.nio.BufferUnderflowException;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Pattern;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidTopicException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A client of idalloc for Java services, to copy. It needs kafka-clients and nothing else:
 *
 * <pre>{@code
 * try (var client = new IdallocClient(IdallocClient.Options.of("localhost:9092", "id.replies.orders"))) {
 *   var ids = client.request(3, "order-4711").values();                            // the same three at each retry
 *   var invoice = client.numbers("invoices/2027", 1, "order-4711").texts().get(0); // INV-000001
 * }
 * }</pre>
 *
 * One thread reads the replies of all calls. It sends a request again until the reply is there, waits for as long as a
 * temporary refusal says, and ends a call after its time limit. Any thread may call the methods.
 */
public final class IdallocClient implements AutoCloseable {
  private static final Duration TICK = Duration.ofMillis(100);
  private static final List<String> RETRYABLE =
      List.of("QUOTA_EXCEEDED", "OVERTAKEN", "SCHEMA_REGISTRY_UNAVAILABLE", "NO_REPLY", "KAFKA_UNAVAILABLE");
  /** The fingerprints with which replies begin, without and with numbers. */
  private static final List<Long> SCHEMAS = List.of(0x5166409208072ae3L, 0x8df710a8de41f887L);
  /** Where a format has the number: {number}, or {number:6} for at least six digits. */
  private static final Pattern PLACE = Pattern.compile("\\{number(?::(\\d+))?\\}");

  /** Why there are no IDs: one of idalloc's error codes, and a message with the cause and the remedy. */
  public static final class IdallocException extends RuntimeException {
    public final String code, correlationId;
    /** Whether, and when, the same call may succeed later, under the same correlation ID; null if nobody knows when. */
    public final boolean retryable;
    public final Duration retryAfter;

    IdallocException(String code, String message, String correlationId, Duration retryAfter, Throwable cause) {
      super(code + ": " + message, cause);
      this.code = code;
      this.correlationId = correlationId;
      this.retryable = retryAfter != null || RETRYABLE.contains(code);
      this.retryAfter = retryAfter;
    }
  }

  /** IDs (sequence is empty), or numbers, that no other request gets; replayed if they were decided before. */
  public record Batch(String correlationId, String sequence, long[] values, String format, boolean replayed) {
    /** Numbers as the format of their sequence writes them, and IDs in digits: JSON numbers have only 53 bits. */
    public List<String> texts() {
      var place = PLACE.matcher(format);
      var digits = place.find() && place.group(1) != null ? "%0" + place.group(1) + "d" : "%d";
      return LongStream.of(values).mapToObj(value -> String.format(Locale.ROOT, digits, value))
          .map(text -> format.replace(place.group(), text)).toList();
    }
  }

  /** Settings of Kafka (brokers, TLS, a login), both topics, a call's time limit, the first pause without a reply. */
  public record Options(
      Map<String, Object> kafka, String requestTopic, String replyTopic, Duration timeout, Duration resendAfter) {
    /** 30 s, and 3 s, which doubles each time, up to 30 s. Instances of a service may share the reply topic. */
    public static Options of(String brokers, String replyTopic) {
      var kafka = Map.<String, Object>of("bootstrap.servers", brokers);
      return new Options(kafka, "id.requests", replyTopic, Duration.ofSeconds(30), Duration.ofSeconds(3));
    }
  }

  /** A request that waits for its reply. Its times are those of System.nanoTime. */
  private static final class Call {
    final CompletableFuture<Batch> reply = new CompletableFuture<>();
    final Map<String, String> headers = new ConcurrentHashMap<>();
    String correlationId, sequence;
    int count;
    volatile long endAt, sendAt, pauseMs;
    volatile IdallocException refusal;
    volatile Exception unsent = new KafkaException("Kafka has not acknowledged it");
  }

  final Options options;
  private final KafkaConsumer<byte[], byte[]> consumer;
  private final KafkaProducer<byte[], byte[]> producer;
  private final int partition;
  private final CompletableFuture<Void> running;
  private final Map<String, List<Call>> calls = new ConcurrentHashMap<>();
  private volatile Exception trouble;
  private volatile boolean closed;

  /** Reads one partition of the reply topic from its end on. Throws TOPIC_INVALID, or KAFKA_UNAVAILABLE. */
  public IdallocClient(Options options) {
    this.options = options;
    var reading = new HashMap<>(options.kafka);
    reading.put("allow.auto.create.topics", false);
    consumer = new KafkaConsumer<>(reading, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    try {
      var missing = Stream.of(options.requestTopic, options.replyTopic)
          .filter(topic -> consumer.partitionsFor(topic, options.timeout).isEmpty()).toList();
      if (!missing.isEmpty()) throw new InvalidTopicException(missing + " do not exist: see 'idalloc topics init'");
      partition = ThreadLocalRandom.current().nextInt(consumer.partitionsFor(options.replyTopic).size());
      var replies = new TopicPartition(options.replyTopic, partition);
      consumer.assign(List.of(replies));
      consumer.seek(replies, consumer.endOffsets(List.of(replies), options.timeout).get(replies));
    } catch (KafkaException error) {
      consumer.close();
      var code = error instanceof InvalidTopicException ? "TOPIC_INVALID" : "KAFKA_UNAVAILABLE";
      throw new IdallocException(code, error.getMessage(), "", null, error);
    }
    // A record that is there twice gets the same batch. So Kafka need not remove duplicates, and a send ends in time.
    var sending = new HashMap<String, Object>(Map.of("enable.idempotence", false, "linger.ms", 0, "max.block.ms", 5_000,
        "request.timeout.ms", 5_000, "delivery.timeout.ms", 10_000));
    sending.putAll(options.kafka);
    producer = new KafkaProducer<>(sending, new ByteArraySerializer(), new ByteArraySerializer());
    running = CompletableFuture.runAsync(this::run, new ForkJoinPool(1)); // a thread that does not keep the process
  }

  /** 1 to 100,000 new IDs; under a correlation ID that had some, also by a call without a reply, the same again. */
  public Batch request(int count, String correlationId) {
    return numbers("", count, correlationId);
  }

  /** The next numbers of a sequence, for the document with this ID: a retry gets the same ones. */
  public Batch numbers(String sequence, int count, String correlationId) {
    try {
      return submit(sequence, count, correlationId, options.timeout).join();
    } catch (CompletionException error) {
      throw (IdallocException) error.getCause();
    }
  }

  /** The same without waiting: IDs if the sequence is empty. If the correlation ID is null, it becomes a random one. */
  public CompletableFuture<Batch> submit(String sequence, int count, String correlationId, Duration timeout) {
    var call = new Call();
    call.correlationId = correlationId == null ? UUID.randomUUID().toString() : correlationId;
    call.sequence = sequence;
    call.count = count;
    call.endAt = System.nanoTime() + timeout.toNanos();
    call.pauseMs = options.resendAfter.toMillis();
    call.sendAt = later(call.pauseMs);
    var bytes = call.correlationId.getBytes(UTF_8).length;
    if (bytes < 1 || bytes > 256) return end(call, "INVALID_CORRELATION_ID", "it must have 1 to 256 bytes", null);
    call.headers.putAll(Map.of("kafka_correlationId", call.correlationId, "kafka_replyTopic", options.replyTopic,
        "kafka_replyPartition", Integer.toString(partition), "idalloc-count", Integer.toString(count)));
    if (!sequence.isEmpty()) call.headers.put("idalloc-sequence", sequence);
    calls.merge(call.correlationId, List.of(call), (a, b) -> Stream.concat(a.stream(), b.stream()).toList());
    if (closed) return end(call, "CLIENT_CLOSED", "the client is closed", null);
    send(call);
    return call.reply;
  }

  /** Ends the client. Calls that still wait fail with CLIENT_CLOSED. */
  @Override
  public void close() {
    closed = true;
    running.join();
  }

  private void run() {
    try {
      while (!closed) {
        try {
          consumer.poll(TICK).forEach(this::answer);
          trouble = null;
        } catch (KafkaException error) { // such as a right that was revoked
          trouble = error;
          LockSupport.parkNanos(TICK.toNanos());
        }
        calls.values().forEach(waiting -> waiting.forEach(this::sendOrEnd));
      }
    } finally {
      closed = true;
      producer.close(TICK);
      consumer.close();
      calls.values().forEach(all -> all.forEach(call -> end(call, "CLIENT_CLOSED", "the client is closed", null)));
    }
  }

  private void sendOrEnd(Call call) {
    if (System.nanoTime() - call.sendAt >= 0) send(call);
    if (System.nanoTime() - call.endAt < 0) return;
    var unsent = call.unsent;
    if (unsent != null) end(call, "KAFKA_UNAVAILABLE", "it could not be sent: " + unsent.getMessage(), unsent);
    else if (call.refusal != null) end(call, null, call.refusal);
    else end(call, "NO_REPLY", "no reply in time: is a worker running?", trouble);
  }

  private void send(Call call) {
    var key = (call.sequence.isEmpty() ? call.correlationId : call.sequence).getBytes(UTF_8);
    var record = new ProducerRecord<byte[], byte[]>(options.requestTopic, key, null);
    call.headers.forEach((name, value) -> record.headers().add(name, value.getBytes(UTF_8)));
    // Only the first record shows how old the request is, so each later one names that time.
    call.headers.putIfAbsent("idalloc-first-sent", Long.toString(System.currentTimeMillis()));
    call.sendAt = later(call.pauseMs);
    call.pauseMs = Math.min(2 * call.pauseMs, 30_000);
    producer.send(record, (sent, error) -> {
      call.unsent = error;
      if (error != null) call.sendAt = later(500);
    });
  }

  /** After this pause, or up to a quarter more, so that clients do not all send again at once. */
  private static long later(long pauseMs) {
    return System.nanoTime() + (long) (pauseMs * 1_000_000 * ThreadLocalRandom.current().nextDouble(1, 1.25));
  }

  private void answer(ConsumerRecord<byte[], byte[]> reply) {
    var id = reply.key() == null ? "" : new String(reply.key(), UTF_8);
    for (var call : calls.getOrDefault(id, List.of())) {
      try {
        var batch = decode(reply, id); // perhaps that of another request under this correlation ID
        if (batch.sequence.equals(call.sequence) && batch.values.length == call.count) end(call, batch, null);
      } catch (IdallocException refusal) {
        var pauseMs = refusal.retryAfter == null ? call.pauseMs : refusal.retryAfter.toMillis();
        call.refusal = refusal;
        call.sendAt = later(pauseMs);
        if (!refusal.retryable || call.endAt - System.nanoTime() <= pauseMs * 1_000_000) end(call, null, refusal);
      } catch (BufferUnderflowException | IllegalArgumentException foreign) {
        return; // no worker wrote it, so it is not the reply
      }
    }
  }

  private CompletableFuture<Batch> end(Call call, String code, String message, Exception cause) {
    return end(call, null, new IdallocException(code, message, call.correlationId, null, cause));
  }

  /** What the caller does with it runs on another thread than the one that reads replies. */
  private CompletableFuture<Batch> end(Call call, Batch batch, IdallocException error) {
    calls.computeIfPresent(call.correlationId, (id, all) -> all.equals(List.of(call)) ? null
        : all.stream().filter(other -> other != call).toList());
    return call.reply.completeAsync(() -> {
      if (error != null) throw error;
      return batch;
    });
  }

  private static Batch decode(ConsumerRecord<byte[], byte[]> reply, String id) {
    var in = ByteBuffer.wrap(reply.value() == null ? new byte[0] : reply.value());
    require(in.getShort() == (short) 0xc301 && SCHEMAS.contains(in.getLong()) && text(in).equals(id));
    var branch = number(in);
    if (branch == 1) {
      var code = text(in);
      require(!code.equals("ANSWERED_BEFORE")); // which refuses an earlier record
      var after = reply.headers().lastHeader("idalloc-retry-after-ms");
      var retryAfter = after == null ? null : Duration.ofMillis(Long.parseLong(new String(after.value(), UTF_8)));
      throw new IdallocException(code, text(in), id, retryAfter, null);
    }
    var sequence = branch == 2 ? text(in) : "";
    var runs = new long[branch == 2 ? 1 : (int) Math.min(number(in), in.remaining())][2];
    for (var run : runs) for (var i = 0; i < 2; i++) run[i] = number(in);
    if (branch == 0) require(number(in) == 0 && number(in) == 0); // the end of the block, and no single IDs
    var step = number(in);
    var format = branch == 2 ? text(in) : "";
    require(format.isEmpty() || PLACE.matcher(format).find());
    require(Stream.of(runs).allMatch(run -> run[1] >= 0 && run[1] <= 100_000));
    var values = Stream.of(runs).flatMapToLong(run -> LongStream.range(0, run[1]).map(i -> run[0] + i * step));
    var isReplayed = reply.headers().lastHeader("idalloc-replayed") != null;
    return new Batch(id, sequence, values.toArray(), format.isEmpty() ? "{number}" : format, isReplayed);
  }

  private static void require(boolean isReply) {
    if (!isReply) throw new IllegalArgumentException("no worker sends it");
  }

  private static long number(ByteBuffer in) {
    var value = 0L;
    for (var shift = 0; ; shift += 7) {
      var read = in.get();
      value |= (long) (read & 0x7f) << shift;
      if (read >= 0) return (value >>> 1) ^ -(value & 1);
    }
  }

  private static String text(ByteBuffer in) {
    var size = number(in);
    require(size >= 0 && size <= in.remaining());
    var bytes = new byte[(int) size];
    in.get(bytes);
    return new String(bytes, UTF_8);
  }
}
