import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * What Kafka's EndToEndLatency does, with times finer than its milliseconds: one record is sent with acks=all, waited for,
 * and then polled for until it has come back, before the next one.
 *
 * <p>Arguments: bootstrap, topic, messages, and optionally bytes per record (100) and warm-up records (2000).
 */
public final class RoundTrip {
    private static final Duration LIMIT = Duration.ofSeconds(60);

    public static void main(String[] args) throws Exception {
        if (args.length < 3 || args.length > 5) {
            System.err.println("usage: RoundTrip BOOTSTRAP TOPIC MESSAGES [BYTES [WARM_UP]]");
            System.exit(2);
        }
        int messages = Integer.parseInt(args[2]);
        byte[] value = new byte[args.length > 3 ? Integer.parseInt(args[3]) : 100];
        Arrays.fill(value, (byte) 'x');
        int warmUp = args.length > 4 ? Integer.parseInt(args[4]) : 2000;
        Map<String, Object> producing = Map.of(
                "bootstrap.servers", args[0],
                "key.serializer", ByteArraySerializer.class,
                "value.serializer", ByteArraySerializer.class,
                "acks", "all",
                "linger.ms", 0);
        Map<String, Object> consuming = Map.of(
                "bootstrap.servers", args[0],
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class,
                "enable.auto.commit", false,
                "fetch.max.wait.ms", 0);
        long[] nanos = new long[messages];
        try (var producer = new KafkaProducer<byte[], byte[]>(producing);
                var consumer = new KafkaConsumer<byte[], byte[]>(consuming)) {
            var partition = List.of(new TopicPartition(args[1], 0));
            consumer.assign(partition);
            consumer.seekToEnd(partition);
            consumer.position(partition.get(0));
            for (int sent = -warmUp; sent < messages; sent++) {
                long start = System.nanoTime();
                producer.send(new ProducerRecord<>(args[1], 0, null, value)).get();
                if (consumer.poll(LIMIT).count() != 1) {
                    throw new IllegalStateException("one record was to come back");
                }
                if (sent >= 0) {
                    nanos[sent] = System.nanoTime() - start;
                }
            }
        }
        double mean = Arrays.stream(nanos).average().orElse(0) / 1e6;
        Arrays.sort(nanos);
        System.out.printf(
                "messages=%d mean_ms=%.3f p50_ms=%.3f p99_ms=%.3f p999_ms=%.3f max_ms=%.3f%n",
                messages, mean, at(nanos, 0.5), at(nanos, 0.99), at(nanos, 0.999), at(nanos, 1.0));
    }

    private static double at(long[] sorted, double quantile) {
        int index = (int) Math.ceil(quantile * sorted.length) - 1;
        return sorted[Math.max(index, 0)] / 1e6;
    }
}
