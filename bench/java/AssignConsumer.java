import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads a topic from its beginning without a group: assign and seekToBeginning over all partitions.
 *
 * <p>Arguments: bootstrap, topic, messages. Prints one line of name=value pairs. The settings are those that Kafka's
 * ConsumerPerformance runs with by default (fetch size 1 MiB per partition, receive buffer 2 MiB, no CRC check). The
 * clock of the rate starts with the first poll, and the time until the first record is printed apart.
 */
public final class AssignConsumer {
    private static final long SILENCE_MS = 30_000;

    public static void main(String[] args) {
        if (args.length != 3) {
            System.err.println("usage: AssignConsumer BOOTSTRAP TOPIC MESSAGES");
            System.exit(2);
        }
        long wanted = Long.parseLong(args[2]);
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", args[0],
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class,
                "enable.auto.commit", false,
                "max.partition.fetch.bytes", 1024 * 1024,
                "receive.buffer.bytes", 2 * 1024 * 1024,
                "check.crcs", false);
        long records = 0;
        long bytes = 0;
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings)) {
            List<TopicPartition> partitions = consumer.partitionsFor(args[1]).stream()
                    .map(info -> new TopicPartition(info.topic(), info.partition()))
                    .toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            long start = System.nanoTime();
            long first = start;
            long last = start;
            while (records < wanted && System.nanoTime() - last < SILENCE_MS * 1_000_000L) {
                var batch = consumer.poll(Duration.ofMillis(100));
                if (batch.isEmpty()) {
                    continue;
                }
                last = System.nanoTime();
                if (records == 0) {
                    first = last;
                }
                for (ConsumerRecord<byte[], byte[]> record : batch) {
                    records++;
                    bytes += (record.key() == null ? 0 : record.key().length)
                            + (record.value() == null ? 0 : record.value().length);
                }
            }
            double seconds = Math.max(last - start, 1) / 1e9;
            System.out.printf(
                    "records=%d bytes=%d seconds=%.3f records_per_s=%.0f mb_per_s=%.2f first_ms=%.1f%n",
                    records, bytes, seconds, records / seconds, bytes / 1048576.0 / seconds, (first - start) / 1e6);
        }
        if (records < wanted) {
            System.err.printf("only %d of %d records arrived%n", records, wanted);
            System.exit(1);
        }
    }
}
