package sessions;

import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.Stores;

/** The application: fragments in, finished sessions out, each exactly once. */
final class Assemble {
    private Assemble() {}

    static int run(Options options) throws Exception {
        Topics.create(options.broker());
        KafkaStreams streams = new KafkaStreams(topology(), settings(options));
        CountDownLatch ended = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((state, before) -> {
            System.out.println(state);
            if (state == KafkaStreams.State.ERROR || state == KafkaStreams.State.NOT_RUNNING) {
                ended.countDown();
            }
        });
        streams.setGlobalStateRestoreListener(new PrintRestores());
        // The process may end before the listener has shown the last state.
        Runtime.getRuntime().addShutdownHook(new Thread(() ->
            System.out.println(streams.close(Duration.ofSeconds(30)) ? "closed" : "not closed")));
        streams.start();
        ended.await();
        return streams.state() == KafkaStreams.State.ERROR ? 1 : 0;
    }

    private static Properties settings(Options options) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "session-assembly");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, options.broker());
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, options.text("--state", "/tmp/sessions") + "/" + options.text("--name", "a"));
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        // An instance that was killed is missed this soon.
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 10_000);
        for (String setting : options.all("--set")) {
            String[] words = setting.split("=", 2);
            settings.put(words[0], words[1]);
        }
        return settings;
    }

    private static Topology topology() {
        var strings = Serdes.String();
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(Assembler.OPEN), strings, strings));
        builder.addStateStore(Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(Assembler.CLOCKS), Serdes.Integer(), Serdes.Long()));
        builder.<String, String>stream(Topics.FRAGMENTS)
                .process(BySession::new)
                .repartition(Repartitioned.<String, String>as("by-session").withNumberOfPartitions(Topics.PARTITIONS))
                .process(Assembler::new, Assembler.OPEN, Assembler.CLOCKS)
                .to(Topics.SESSIONS);
        return builder.build();
    }

    /** Gives each fragment its session as the key, and its partition as the first word of the value. */
    private static final class BySession extends ContextualProcessor<String, String, String, String> {
        @Override
        public void process(Record<String, String> record) {
            int source = context().recordMetadata().orElseThrow().partition();
            String session = Fragment.parse(record.value()).session();
            context().forward(record.withKey(session).withValue(source + " " + record.value()));
        }
    }
}
