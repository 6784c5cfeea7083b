import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One consumer of a group subscribes to many topics by name, each with a record in it, and reads them all.
 *
 * <p>Arguments: bootstrap, the format of the names, how many topics, the group, the group protocol. Times are from
 * `subscribe`. Prints one line of name=value pairs.
 */
public final class SubscribeMany {
    private static final long SILENCE_MS = 120_000;

    public static void main(String[] args) {
        if (args.length != 5) {
            System.err.println("usage: SubscribeMany BOOTSTRAP FORMAT TOPICS GROUP PROTOCOL");
            System.exit(2);
        }
        int count = Integer.parseInt(args[2]);
        List<String> topics = IntStream.range(0, count).mapToObj(number -> String.format(args[1], number)).toList();
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", args[0],
                "group.id", args[3],
                "group.protocol", args[4],
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class,
                "enable.auto.commit", false,
                "auto.offset.reset", "earliest",
                "allow.auto.create.topics", false);
        Set<String> seen = new HashSet<>();
        double first = 0;
        double all = 0;
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings)) {
            long start = System.nanoTime();
            long last = start;
            consumer.subscribe(topics);
            while (seen.size() < count && System.nanoTime() - last < SILENCE_MS * 1_000_000L) {
                for (var record : consumer.poll(Duration.ofMillis(100))) {
                    last = System.nanoTime();
                    if (seen.isEmpty()) {
                        first = (last - start) / 1e9;
                    }
                    seen.add(record.topic());
                }
            }
            all = (last - start) / 1e9;
        }
        System.out.printf("topics=%d read=%d first_s=%.3f all_s=%.3f%n", count, seen.size(), first, all);
        if (seen.size() < count) {
            System.exit(1);
        }
    }
}
