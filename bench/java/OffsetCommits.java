import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Commits of one group to one partition, each for itself.
 *
 * <p>Arguments: bootstrap, topic, group, commits, and how many may be under way (1: each is waited for). Prints one line of
 * name=value pairs. The first tenth does not count.
 */
public final class OffsetCommits {
    public static void main(String[] args) throws Exception {
        if (args.length != 5) {
            System.err.println("usage: OffsetCommits BOOTSTRAP TOPIC GROUP COMMITS UNDER_WAY");
            System.exit(2);
        }
        int commits = Integer.parseInt(args[3]);
        int underWay = Integer.parseInt(args[4]);
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", args[0],
                "group.id", args[2],
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class,
                "enable.auto.commit", false);
        var partition = new TopicPartition(args[1], 0);
        var failed = new AtomicInteger();
        double seconds;
        try (var consumer = new KafkaConsumer<byte[], byte[]>(settings)) {
            consumer.assign(List.of(partition));
            commit(consumer, partition, commits / 10, underWay, failed);
            long start = System.nanoTime();
            commit(consumer, partition, commits, underWay, failed);
            seconds = (System.nanoTime() - start) / 1e9;
        }
        if (failed.get() > 0) {
            System.err.printf("%d commits failed%n", failed.get());
            System.exit(1);
        }
        System.out.printf("commits=%d seconds=%.3f commits_per_s=%.0f%n", commits, seconds, commits / seconds);
    }

    private static void commit(
            KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, int commits, int underWay, AtomicInteger failed) {
        var permits = new Semaphore(underWay);
        for (int offset = 0; offset < commits; offset++) {
            var place = Map.of(partition, new OffsetAndMetadata(offset));
            if (underWay == 1) {
                consumer.commitSync(place);
                continue;
            }
            while (!permits.tryAcquire()) {
                // Callbacks are run by the thread that polls.
                consumer.poll(Duration.ZERO);
            }
            consumer.commitAsync(place, (done, error) -> {
                permits.release();
                if (error != null) {
                    failed.incrementAndGet();
                }
            });
        }
        while (permits.availablePermits() < underWay) {
            consumer.poll(Duration.ZERO);
        }
    }
}
