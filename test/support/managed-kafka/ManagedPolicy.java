import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.errors.PolicyViolationException;
import org.apache.kafka.server.policy.CreateTopicPolicy;

/**
 * Refuses the settings of new topics that a managed service fixes. Topics whose names begin with a service's follow
 * its rules, as its documentation has them; all others are free.
 */
public final class ManagedPolicy implements CreateTopicPolicy {
  private record Service(Set<String> settable, Map<String, Long> least) {}

  private static final Map<String, Service> SERVICES = Map.of(
    "tconfluent",
    new Service(
      Set.of(
        "cleanup.policy",
        "max.message.bytes",
        "message.timestamp.type",
        "min.insync.replicas",
        "retention.bytes",
        "retention.ms",
        "segment.ms"
      ),
      Map.of("segment.ms", 14_400_000L)
    ),
    "tmsk",
    new Service(
      Set.of(
        "cleanup.policy",
        "compression.type",
        "max.message.bytes",
        "message.timestamp.type",
        "retention.bytes",
        "retention.ms"
      ),
      Map.of()
    )
  );

  @Override
  public void validate(RequestMetadata request) {
    SERVICES.forEach((prefix, service) -> {
      if (request.topic().startsWith(prefix)) request.configs().forEach((key, value) -> check(service, key, value));
    });
  }

  private static void check(Service service, String key, String value) {
    if (!service.settable.contains(key)) throw new PolicyViolationException("Config " + key + " can't be set");
    Long least = service.least.get(key);
    if (least != null && Long.parseLong(value) < least)
      throw new PolicyViolationException("Config " + key + " must be at least " + least);
  }

  @Override
  public void configure(Map<String, ?> configs) {}

  @Override
  public void close() {}
}
