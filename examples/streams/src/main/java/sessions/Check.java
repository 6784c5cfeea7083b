package sessions;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Reads the committed sessions and checks that each is there once and complete. */
final class Check {
    private final Map<String, String> found = new HashMap<>();
    private int wrong;

    static int run(Options options) {
        return new Check().read(options) ? 0 : 1;
    }

    private boolean read(Options options) {
        int sessions = options.number("--sessions", 5000);
        long end = System.nanoTime() + Duration.ofSeconds(options.number("--wait", 60)).toNanos();
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", options.broker(),
                "key.deserializer", StringDeserializer.class,
                "value.deserializer", StringDeserializer.class,
                "isolation.level", "read_committed");
        try (var consumer = new KafkaConsumer<String, String>(settings)) {
            List<TopicPartition> partitions = IntStream.range(0, Topics.PARTITIONS)
                    .mapToObj(partition -> new TopicPartition(Topics.SESSIONS, partition))
                    .toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            boolean more = true;
            while (more) {
                consumer.poll(Duration.ofMillis(200)).forEach(this::look);
                more = consumer.currentLag(partitions.get(0)).isEmpty()
                        || (found.size() < sessions && System.nanoTime() < end)
                        || behind(consumer, partitions);
            }
        }
        for (int number = 0; number < sessions; number++) {
            Script script = new Script(number);
            String value = found.remove(script.session());
            if (!script.finished().equals(value)) {
                fault(script.session() + " is " + value + ", not " + script.finished());
            }
        }
        found.forEach((session, value) -> fault("there is no session " + session + ": " + value));
        System.out.println(wrong == 0 ? sessions + " sessions, each once and complete" : wrong + " faults");
        return wrong == 0;
    }

    /** True until everything that is committed now has been read. */
    private static boolean behind(KafkaConsumer<String, String> consumer, List<TopicPartition> partitions) {
        return consumer.endOffsets(partitions).entrySet().stream()
                .anyMatch(end -> consumer.position(end.getKey()) < end.getValue());
    }

    private void look(ConsumerRecord<String, String> record) {
        if (record.key().startsWith("later")) {
            return;
        }
        String before = found.put(record.key(), record.value());
        if (before != null) {
            fault(record.key() + " is there twice: " + before + ", and " + record.value());
        }
    }

    private void fault(String text) {
        wrong++;
        if (wrong <= 20) {
            System.out.println(text);
        }
    }
}
