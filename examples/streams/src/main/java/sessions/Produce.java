package sessions;

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.Producer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** Plays sessions, many at once, and then a day later one fragment each of others: the clocks go on. */
final class Produce {
    private static final int AT_ONCE = 200;
    /** Enough for each pair of a partition and one of those by session. */
    private static final int LATER = 400;
    private static final long STEP_MS = 100;
    private static final long DAY_MS = Duration.ofDays(1).toMillis();

    private final Producer<String, String> producer;
    private final int rate;
    private final long begin = System.nanoTime();
    private final AtomicReference<Exception> failure = new AtomicReference<>();
    /** Time of the newest fragment, in ms. It runs faster than the clock, and brokers refuse what is ahead of that. */
    private long time = System.currentTimeMillis() - 3 * DAY_MS;
    private int sent;
    private int written;

    private Produce(Producer<String, String> producer, int rate) {
        this.producer = producer;
        this.rate = rate;
    }

    static int run(Options options) throws Exception {
        Topics.create(options.broker());
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", options.broker(),
                "key.serializer", StringSerializer.class,
                "value.serializer", StringSerializer.class,
                "linger.ms", 5,
                // However long the broker is away, each fragment is written once.
                "enable.idempotence", true,
                "delivery.timeout.ms", Integer.MAX_VALUE);
        try (var producer = new KafkaProducer<String, String>(settings)) {
            new Produce(producer, options.number("--rate", 1000)).play(options.number("--sessions", 5000));
        }
        return 0;
    }

    private void play(int sessions) throws Exception {
        Random random = new Random(1);
        List<int[]> playing = new ArrayList<>();
        int next = 0;
        while (next < sessions || !playing.isEmpty()) {
            while (next < sessions && playing.size() < AT_ONCE) {
                playing.add(new int[] {next++, 0});
            }
            int[] session = playing.get(random.nextInt(playing.size()));
            Script script = new Script(session[0]);
            send(script.visitor(), script.fragment(session[1]++));
            if (session[1] == script.fragments()) {
                playing.remove(session);
            }
        }
        time += DAY_MS;
        for (int number = 0; number < LATER; number++) {
            send(new Script(number).visitor(), new Fragment("later" + number, 0, Fragment.END));
        }
        producer.flush();
        if (failure.get() != null) {
            throw failure.get();
        }
        System.out.println(sent + " fragments of " + (sessions + LATER) + " sessions are written");
    }

    private void send(String visitor, Fragment fragment) throws InterruptedException {
        time += STEP_MS;
        producer.send(
                new ProducerRecord<>(Topics.FRAGMENTS, null, time, visitor, fragment.toString()),
                (place, error) -> onAnswer(error));
        sent++;
        if (rate > 0) {
            long ahead = sent * 1_000_000_000L / rate - (System.nanoTime() - begin);
            if (ahead > 1_000_000) {
                Thread.sleep(ahead / 1_000_000);
            }
        }
    }

    /** Runs in the producer's thread. */
    private void onAnswer(Exception error) {
        failure.compareAndSet(null, error);
        written++;
        if (written % 1000 == 0) {
            System.out.println(written);
        }
    }
}
