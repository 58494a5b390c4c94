/**
 * Gives an order three IDs, or the next number of a sequence, and prints them:
 * Order BROKERS REPLY_TOPIC ORDER [SEQUENCE]
 */
public class Order {
  public static void main(String[] args) {
    if (args.length != 3 && args.length != 4) {
      System.err.println("usage: Order BROKERS REPLY_TOPIC ORDER [SEQUENCE]");
      System.exit(2);
    }
    try (var client = new IdallocClient(IdallocClient.Options.of(args[0], args[1]))) {
      var batch = args.length == 3 ? client.request(3, args[2]) : client.numbers(args[3], 1, args[2]);
      batch.texts().forEach(System.out::println);
    } catch (IdallocClient.IdallocException error) {
      System.err.println(error.getMessage());
      System.exit(1);
    }
  }
}
