import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.Map;
import java.util.SplittableRandom;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Records with keys, as fast as it goes: first each key once, then keys at random, the same in every run.
 *
 * <p>Arguments: bootstrap, topic, records, keys, bytes per value. Keys are 16 bytes. Prints one line of name=value pairs.
 */
public final class KeyedProduce {
    public static void main(String[] args) {
        if (args.length != 5) {
            System.err.println("usage: KeyedProduce BOOTSTRAP TOPIC RECORDS KEYS BYTES");
            System.exit(2);
        }
        long records = Long.parseLong(args[2]);
        long keys = Long.parseLong(args[3]);
        byte[] value = new byte[Integer.parseInt(args[4])];
        Arrays.fill(value, (byte) 'x');
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", args[0],
                "key.serializer", ByteArraySerializer.class,
                "value.serializer", ByteArraySerializer.class,
                "acks", "all",
                "linger.ms", 5,
                "batch.size", 65536);
        var random = new SplittableRandom(1);
        var failed = new AtomicLong();
        long start = System.nanoTime();
        try (var producer = new KafkaProducer<byte[], byte[]>(settings)) {
            for (long sent = 0; sent < records; sent++) {
                long number = sent < keys ? sent : random.nextLong(keys);
                byte[] key = ByteBuffer.allocate(16).putLong(number * 0x9E3779B97F4A7C15L).putLong(number).array();
                producer.send(new ProducerRecord<>(args[1], key, value), (metadata, error) -> {
                    if (error != null) {
                        failed.incrementAndGet();
                    }
                });
            }
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        System.out.printf("records=%d seconds=%.3f records_per_s=%.0f%n", records, seconds, records / seconds);
        if (failed.get() > 0) {
            System.err.printf("%d records were refused%n", failed.get());
            System.exit(1);
        }
    }
}
