import java.time.Duration;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A member of a share group that fails whenever it gets one certain record: it releases all that came with it, and
 * accepts the rest. Writes the records itself, in one batch.
 *
 * <p>Arguments: bootstrap, topic, records, number of the record that is not accepted, and optionally the group's
 * share.delivery.count.limit (5). Ends when that record was delivered as often as it may be, and each other was accepted
 * or delivered as often. Prints one line of name=value pairs.
 */
public final class PoisonedShare {
    public static void main(String[] args) throws Exception {
        if (args.length < 4 || args.length > 5) {
            System.err.println("usage: PoisonedShare BOOTSTRAP TOPIC RECORDS POISON [LIMIT]");
            System.exit(2);
        }
        String topic = args[1];
        int count = Integer.parseInt(args[2]);
        int poison = Integer.parseInt(args[3]);
        int limit = args.length > 4 ? Integer.parseInt(args[4]) : 5;
        configure(args[0], limit);
        produce(args[0], topic, count);
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", args[0],
                "group.id", "poisoned",
                "share.acknowledgement.mode", "explicit",
                "key.deserializer", ByteArrayDeserializer.class,
                "value.deserializer", ByteArrayDeserializer.class);
        boolean[] accepted = new boolean[count];
        int[] deliveries = new int[count];
        int polls = 0;
        try (var consumer = new KafkaShareConsumer<byte[], byte[]>(settings)) {
            consumer.subscribe(List.of(topic));
            while (!isDone(accepted, deliveries, limit)) {
                var records = consumer.poll(Duration.ofSeconds(1));
                boolean fails = false;
                for (var record : records) {
                    fails |= record.offset() == poison;
                }
                for (var record : records) {
                    int at = (int) record.offset();
                    deliveries[at] = record.deliveryCount().orElseThrow();
                    accepted[at] |= !fails;
                    consumer.acknowledge(record, fails ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT);
                }
                consumer.commitSync();
                polls += records.isEmpty() ? 0 : 1;
            }
        }
        int kept = 0;
        for (boolean one : accepted) {
            kept += one ? 1 : 0;
        }
        System.out.printf("accepted=%d lost=%d polls=%d%n", kept, count - 1 - kept, polls);
    }

    private static boolean isDone(boolean[] accepted, int[] deliveries, int limit) {
        for (int at = 0; at < accepted.length; at++) {
            if (!accepted[at] && deliveries[at] < limit) {
                return false;
            }
        }
        return true;
    }

    private static void configure(String bootstrap, int limit) throws Exception {
        try (var admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            var group = new ConfigResource(ConfigResource.Type.GROUP, "poisoned");
            var reset = new ConfigEntry("share.auto.offset.reset", "earliest");
            var limited = new ConfigEntry("share.delivery.count.limit", Integer.toString(limit));
            var set = AlterConfigOp.OpType.SET;
            admin.incrementalAlterConfigs(
                            Map.of(group, List.of(new AlterConfigOp(reset, set), new AlterConfigOp(limited, set))))
                    .all()
                    .get();
        }
    }

    private static void produce(String bootstrap, String topic, int count) throws Exception {
        byte[] value = new byte[10];
        Arrays.fill(value, (byte) 'x');
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", bootstrap,
                "key.serializer", ByteArraySerializer.class,
                "value.serializer", ByteArraySerializer.class,
                "linger.ms", 1000);
        try (var producer = new KafkaProducer<byte[], byte[]>(settings)) {
            for (int sent = 0; sent < count; sent++) {
                producer.send(new ProducerRecord<>(topic, 0, null, value));
            }
        }
    }
}
