import java.time.Duration;
import java.util.ArrayDeque;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;

/**
 * IDs in memory, for a service that can't wait for a reply each time; to copy beside IdallocClient.java:
 *
 * <pre>{@code
 * var buffer = new IdallocBuffer(client, 1_000, Duration.ofMinutes(1));
 * var key = buffer.next(Duration.ofSeconds(5)); // at once; without a worker, until the buffer is empty
 * }</pre>
 *
 * It requests the next batch when half of the IDs are used. Any thread may call next. The buffer ends with its client.
 */
public final class IdallocBuffer {
  /** How long nothing is requested after a failure: not long, if a retry may help. */
  private static final Duration SOON = Duration.ofMillis(500), LATE = Duration.ofSeconds(30);

  private record Stocked(long id, long askedAt) {}

  private final IdallocClient client;
  private final int size;
  private final long maxAgeNs;
  private final ArrayDeque<Stocked> stock = new ArrayDeque<>();
  private CompletableFuture<IdallocClient.Batch> more;
  private long pausedUntil = System.nanoTime();

  /**
   * Begins to request IDs: size of them, 2 to 200,000, in two batches. None is given out that is older than maxAge,
   * which bounds how far the order of IDs may be from that of their use.
   */
  public IdallocBuffer(IdallocClient client, int size, Duration maxAge) {
    this.client = client;
    this.size = size;
    maxAgeNs = maxAge.toNanos();
    requestMore();
  }

  /**
   * An ID that nobody else gets. Waits only while the buffer is empty. Throws BUFFER_EMPTY when the time is over, or
   * when a request for more has failed, whose error is the cause.
   */
  public long next(Duration timeout) {
    var endAt = System.nanoTime() + timeout.toNanos();
    while (true) {
      CompletableFuture<IdallocClient.Batch> awaited;
      synchronized (this) {
        while (!stock.isEmpty() && System.nanoTime() - stock.peek().askedAt > maxAgeNs) stock.remove();
        if (stock.size() <= size / 2 && more.isDone() && System.nanoTime() - pausedUntil >= 0) requestMore();
        if (!stock.isEmpty()) return stock.remove().id;
        awaited = more;
      }
      try {
        awaited.get(endAt - System.nanoTime(), TimeUnit.NANOSECONDS);
      } catch (TimeoutException late) {
        throw lacking("no reply in time", late);
      } catch (ExecutionException failed) {
        throw lacking(failed.getCause().getMessage(), failed.getCause());
      } catch (InterruptedException interrupted) {
        Thread.currentThread().interrupt();
        throw lacking("the thread was interrupted", interrupted);
      }
    }
  }

  private static IdallocClient.IdallocException lacking(String why, Throwable cause) {
    var message = "there is no ID in memory: " + why;
    return new IdallocClient.IdallocException("BUFFER_EMPTY", message, "", SOON, cause);
  }

  private synchronized void requestMore() {
    var askedAt = System.nanoTime();
    // On another thread, since a send waits while Kafka is away.
    var asked = CompletableFuture.supplyAsync(() -> client.submit("", size / 2, null, client.options.timeout()));
    more = asked.thenCompose(reply -> reply).whenComplete((batch, error) -> {
      synchronized (this) {
        if (error == null) for (var id : batch.values()) stock.add(new Stocked(id, askedAt));
        else pausedUntil = System.nanoTime() + (mayHelp(error) ? SOON : LATE).toNanos();
      }
    });
  }

  /** Whether a retry may help. */
  private static boolean mayHelp(Throwable error) {
    return error.getCause() instanceof IdallocClient.IdallocException refusal && refusal.retryable;
  }
}
