package sessions;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * Gathers the fragments of each session until its END, or until none came for {@link #TIMEOUT_MS}.
 *
 * <p>Time is that of the fragments, and a session's clock is that of the partition its fragments come from: they pass
 * both topics in one order, so the result depends on the fragments alone, not on how far instances and partitions are
 * apart. A wall clock would end sessions because the broker or the application was away.
 */
final class Assembler extends ContextualProcessor<String, String, String, String> {
    /** Store of open sessions by name: {@link OpenSession}. */
    static final String OPEN = "open-sessions";
    /** Store of clocks by source partition: the newest time of a fragment, in ms. */
    static final String CLOCKS = "clocks";
    static final long TIMEOUT_MS = Duration.ofMinutes(30).toMillis();
    private static final Duration LOOK_INTERVAL = Duration.ofSeconds(1);

    private KeyValueStore<String, String> open;
    private KeyValueStore<Integer, Long> clocks;

    @Override
    public void init(ProcessorContext<String, String> context) {
        super.init(context);
        open = context.getStateStore(OPEN);
        clocks = context.getStateStore(CLOCKS);
        context.schedule(LOOK_INTERVAL, PunctuationType.WALL_CLOCK_TIME, now -> finishTimedOut());
    }

    @Override
    public void process(Record<String, String> record) {
        String[] words = record.value().split(" ", 2);
        int source = Integer.parseInt(words[0]);
        Fragment fragment = Fragment.parse(words[1]);
        advance(source, record.timestamp());

        String stored = open.get(record.key());
        OpenSession session = stored == null ? null : OpenSession.parse(stored);
        if (session != null && record.timestamp() - session.last() > TIMEOUT_MS) {
            // It had ended before this fragment, and nobody had looked.
            finish(record.key(), session, "TIMEOUT");
            session = null;
        }
        if (session == null) {
            session = new OpenSession(source, record.timestamp(), "");
        }
        session = session.with(fragment, record.timestamp());
        if (fragment.isEnd()) {
            finish(record.key(), session, Fragment.END);
        } else {
            open.put(record.key(), session.toString());
        }
    }

    private void advance(int source, long time) {
        Long clock = clocks.get(source);
        if (clock == null || clock < time) {
            clocks.put(source, time);
        }
    }

    private void finishTimedOut() {
        List<KeyValue<String, OpenSession>> timedOut = new ArrayList<>();
        try (var sessions = open.all()) {
            sessions.forEachRemaining(entry -> {
                OpenSession session = OpenSession.parse(entry.value);
                if (clocks.get(session.source()) - session.last() > TIMEOUT_MS) {
                    timedOut.add(KeyValue.pair(entry.key, session));
                }
            });
        }
        timedOut.forEach(entry -> finish(entry.key, entry.value, "TIMEOUT"));
    }

    private void finish(String name, OpenSession session, String how) {
        context().forward(new Record<>(name, how + " " + session.actions(), session.last()));
        open.delete(name);
    }
}
