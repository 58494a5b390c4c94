import java.time.Duration;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import java.util.stream.LongStream;
import java.util.stream.Stream;

/** A service for tests: a call on each line of standard input, its outcome on one of standard output. */
public class Service {
  private static final Duration TIMEOUT = Duration.ofMinutes(4);
  private static CompletableFuture<IdallocClient.Batch> begun;
  private static IdallocBuffer buffer;

  /** BROKERS REQUESTS REPLIES */
  public static void main(String[] args) throws Exception {
    var kafka = Map.<String, Object>of("bootstrap.servers", args[0]);
    try (var client = new IdallocClient(
        new IdallocClient.Options(kafka, args[1], args[2], TIMEOUT, Duration.ofSeconds(1)))) {
      serve(client, client);
    } catch (IdallocClient.IdallocException error) {
      refused(error);
      System.exit(1);
    }
  }

  /** `owner` closes the client. */
  static void serve(IdallocClient client, AutoCloseable owner) throws Exception {
    for (var lines = new Scanner(System.in); lines.hasNextLine();) {
      try {
        var texts = call(client, owner, lines.nextLine()).collect(Collectors.joining("\",\"", "\"", "\""));
        System.out.println("{\"values\":[" + (texts.equals("\"\"") ? "" : texts) + "]}");
      } catch (CompletionException | IdallocClient.IdallocException error) {
        refused(error);
      }
    }
  }

  private static Stream<String> call(IdallocClient client, AutoCloseable owner, String call) throws Exception {
    var begin = field(call, "begin", null);
    if (begin != null) {
      begun = client.submit("", 1, begin, TIMEOUT);
      return Stream.of();
    }
    if (field(call, "close", null) != null) {
      owner.close();
      return begun.join().texts().stream();
    }
    var count = Integer.parseInt(field(call, "count", "1"));
    var many = field(call, "many", null);
    if (many != null) {
      var all = Stream.generate(() -> client.submit("", count, null, TIMEOUT)).limit(Integer.parseInt(many)).toList();
      return all.stream().flatMap(one -> one.join().texts().stream());
    }
    var timeout = Duration.ofMillis(Long.parseLong(field(call, "timeout_ms", Long.toString(TIMEOUT.toMillis()))));
    var next = field(call, "next", null);
    if (next != null) {
      if (buffer == null) buffer = new IdallocBuffer(client, 500, Duration.ofMinutes(5));
      return LongStream.generate(() -> buffer.next(timeout)).limit(Integer.parseInt(next)).mapToObj(Long::toString);
    }
    return client.submit(field(call, "sequence", ""), count, field(call, "id", null), timeout).join().texts().stream();
  }

  /** A field of a flat JSON object. */
  private static String field(String json, String name, String otherwise) {
    var found = Pattern.compile("\"" + name + "\":\"?([^\",}]+)").matcher(json);
    return found.find() ? found.group(1) : otherwise;
  }

  static void refused(Throwable error) {
    if (!(error instanceof IdallocClient.IdallocException refusal)) refused(error.getCause());
    else System.out.printf("{\"code\":\"%s\",\"retryable\":%s,\"correlation_id\":\"%s\"}%n",
        refusal.code, refusal.retryable, refusal.correlationId);
  }
}
