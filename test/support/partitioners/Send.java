import static java.nio.charset.StandardCharsets.UTF_8;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Map;
import java.util.Scanner;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Sends a request for each correlation ID, one a line of standard input, with the default partitioner:
 * Send [--no-key] BROKERS REQUEST_TOPIC REPLY_TOPIC COUNT TRACEPARENT
 */
public class Send {
  public static void main(String[] arguments) throws Exception {
    var args = new ArrayList<>(Arrays.asList(arguments));
    var withKey = !args.remove("--no-key");
    var bytes = new ByteArraySerializer();
    try (var producer = new KafkaProducer<>(Map.<String, Object>of("bootstrap.servers", args.get(0)), bytes, bytes)) {
      var sent = new ArrayList<Future<?>>();
      for (var lines = new Scanner(System.in); lines.hasNextLine();) {
        var id = lines.nextLine().getBytes(UTF_8);
        var record = new ProducerRecord<byte[], byte[]>(args.get(1), withKey ? id : null, null);
        record.headers().add("kafka_correlationId", id).add("kafka_replyTopic", args.get(2).getBytes(UTF_8))
            .add("idalloc-count", args.get(3).getBytes(UTF_8)).add("traceparent", args.get(4).getBytes(UTF_8));
        sent.add(producer.send(record));
      }
      for (var one : sent) one.get();
    }
  }
}
