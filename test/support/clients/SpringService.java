import java.util.Map;
import org.springframework.beans.factory.BeanCreationException;
import org.springframework.boot.Banner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.SpringBootConfiguration;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Import;

/** Service with the bean of a context, which closes it. */
@SpringBootConfiguration(proxyBeanMethods = false)
@EnableAutoConfiguration
@Import(IdallocConfiguration.class)
public class SpringService {
  /** BROKERS REQUESTS REPLIES */
  public static void main(String[] args) throws Exception {
    var application = new SpringApplication(SpringService.class);
    application.setBannerMode(Banner.Mode.OFF);
    application.setDefaultProperties(Map.of(
        "spring.kafka.bootstrap-servers", args[0], "idalloc.request-topic", args[1], "idalloc.reply-topic", args[2],
        "idalloc.timeout", "4m", "idalloc.resend-after", "1s", "logging.level.root", "off"));
    try (var context = application.run()) {
      Service.serve(context.getBean(IdallocClient.class), context);
    } catch (BeanCreationException error) {
      Service.refused(error);
      System.exit(1);
    }
  }
}
