import java.time.Duration;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.core.KafkaAdmin;

/**
 * A bean of IdallocClient for Spring Boot, to copy beside IdallocClient.java. It connects as {@code spring.kafka} says:
 * the brokers, TLS and a login. {@code idalloc.reply-topic} is required.
 *
 * <p>Without Kafka the context does not start. It closes the client when web servers and listeners have stopped, so their
 * last calls are answered.
 */
@Configuration(proxyBeanMethods = false)
public class IdallocConfiguration {
  @Bean
  IdallocClient idallocClient(
      KafkaAdmin kafka,
      @Value("${idalloc.request-topic:id.requests}") String requestTopic,
      @Value("${idalloc.reply-topic}") String replyTopic,
      @Value("${idalloc.timeout:30s}") Duration timeout,
      @Value("${idalloc.resend-after:3s}") Duration resendAfter) {
    return new IdallocClient(new IdallocClient.Options(
        kafka.getConfigurationProperties(), requestTopic, replyTopic, timeout, resendAfter));
  }
}
