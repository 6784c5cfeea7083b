import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A producer and a consumer, each as fast as it goes, until standard input ends: records of 100 B to one topic, and
 * another topic read over and over.
 *
 * <p>Arguments: bootstrap, topic to produce to, topic to read. Prints both counts of records ten times a second.
 */
public final class Foreground {
    private static final AtomicLong produced = new AtomicLong();
    private static final AtomicLong read = new AtomicLong();

    public static void main(String[] args) throws Exception {
        if (args.length != 3) {
            System.err.println("usage: Foreground BOOTSTRAP PRODUCE_TO READ_FROM");
            System.exit(2);
        }
        start(() -> produce(args[0], args[1]));
        start(() -> read(args[0], args[2]));
        start(Foreground::report);
        while (System.in.read() >= 0) {
            // The bytes do not count: the end of the input ends the program.
        }
        Runtime.getRuntime().halt(0);
    }

    private static void start(Runnable work) {
        var thread = new Thread(work);
        thread.setDaemon(true);
        thread.setUncaughtExceptionHandler((failed, error) -> {
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        thread.start();
    }

    private static void report() {
        while (true) {
            System.out.printf("%d %d%n", produced.get(), read.get());
            System.out.flush();
            try {
                Thread.sleep(100);
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }
    }

    private static void produce(String bootstrap, String topic) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "key.serializer", ByteArraySerializer.class,
                "value.serializer", ByteArraySerializer.class,
                "acks", "all",
                "linger.ms", 5,
                "batch.size", 65536);
        byte[] value = new byte[100];
        Arrays.fill(value, (byte) 'x');
        var producer = new KafkaProducer<byte[], byte[]>(settings);
        while (true) {
            producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> {
                if (error != null) {
                    throw new IllegalStateException(error);
                }
                produced.incrementAndGet();
            });
        }
    }

    private static void read(String bootstrap, String topic) {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class,
                "enable.auto.commit", false,
                "max.partition.fetch.bytes", 1024 * 1024,
                "receive.buffer.bytes", 2 * 1024 * 1024,
                "check.crcs", false);
        var consumer = new KafkaConsumer<byte[], byte[]>(settings);
        List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
                .map(info -> new TopicPartition(info.topic(), info.partition()))
                .toList();
        consumer.assign(partitions);
        var ends = consumer.endOffsets(partitions);
        consumer.seekToBeginning(partitions);
        while (true) {
            read.addAndGet(consumer.poll(Duration.ofMillis(100)).count());
            for (var partition : partitions) {
                if (consumer.position(partition) >= ends.get(partition)) {
                    consumer.seekToBeginning(List.of(partition));
                }
            }
        }
    }
}
