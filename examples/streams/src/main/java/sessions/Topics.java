package sessions;

import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.errors.TopicExistsException;

/** The two topics of the example. Those in between are made by Kafka Streams. */
final class Topics {
    /** Fragments by visitor. */
    static final String FRAGMENTS = "fragments";
    /** Finished sessions by their name: {@code END} or {@code TIMEOUT}, and the actions. */
    static final String SESSIONS = "sessions";
    static final int PARTITIONS = 4;

    private Topics() {}

    /** Makes the topics that are not there. */
    static void create(String broker) throws InterruptedException, ExecutionException {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", broker))) {
            for (String name : List.of(FRAGMENTS, SESSIONS)) {
                NewTopic topic = new NewTopic(name, Optional.of(PARTITIONS), Optional.empty());
                try {
                    admin.createTopics(List.of(topic)).all().get();
                } catch (ExecutionException error) {
                    if (!(error.getCause() instanceof TopicExistsException)) {
                        throw error;
                    }
                }
            }
        }
    }
}
