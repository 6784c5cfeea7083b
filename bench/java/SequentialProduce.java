import java.util.Arrays;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * One record at a time, each waited for: the latency of a produce with acks=all and no lingering.
 *
 * <p>Arguments: bootstrap, topic, messages, and optionally bytes per record (100) and a number of warm-up records that
 * are not counted (2000). Prints one line of name=value pairs, times in milliseconds.
 */
public final class SequentialProduce {
    public static void main(String[] args) throws Exception {
        if (args.length < 3 || args.length > 5) {
            System.err.println("usage: SequentialProduce BOOTSTRAP TOPIC MESSAGES [BYTES [WARM_UP]]");
            System.exit(2);
        }
        int messages = Integer.parseInt(args[2]);
        byte[] value = new byte[args.length > 3 ? Integer.parseInt(args[3]) : 100];
        Arrays.fill(value, (byte) 'x');
        int warmUp = args.length > 4 ? Integer.parseInt(args[4]) : 2000;
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", args[0],
                "key.serializer", ByteArraySerializer.class,
                "value.serializer", ByteArraySerializer.class,
                "acks", "all",
                "linger.ms", 0);
        long[] nanos = new long[messages];
        try (var producer = new KafkaProducer<byte[], byte[]>(settings)) {
            for (int sent = -warmUp; sent < messages; sent++) {
                long start = System.nanoTime();
                producer.send(new ProducerRecord<>(args[1], value)).get();
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
