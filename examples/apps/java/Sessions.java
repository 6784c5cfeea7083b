import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.IOException;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CompletableFuture;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * Sessions from fragments, exactly once, the mixed way: records are read by Kafka's consumer, claims, state and commits go over
 * HTTP. The fragments, the sessions and their check are those of examples/streams, which does the same with Kafka Streams.
 *
 * <pre>
 * examples/build streams     # Kafka's client and a reader of JSON
 * java -cp 'target/examples/streams/libs/*' examples/apps/java/Sessions.java [HTTP [KAFKA [WORKER [TIMEOUT_MS]]]]
 * </pre>
 */
public final class Sessions {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String FRAGMENTS = "fragments";
    private static final String RESULTS = "sessions";
    private static final long SILENCE_MS = Duration.ofMinutes(30).toMillis();
    private static final int RECORDS_MAX = 10_000;
    private static final long POLL_EVERY_NS = Duration.ofMillis(20).toNanos();

    /** A session that goes on: the time of its newest fragment, and what happened. */
    private record Open(long last, String actions) {}

    /** A claim, and what is known of its task. */
    private static final class Task {
        final String name;
        final long epoch;
        final TopicPartition partition;
        long seq;
        long next;
        long clock;
        /** In the order of their newest fragments. */
        final LinkedHashMap<String, Open> open = new LinkedHashMap<>();
        /** Sessions that differ from the last commit, and results since then. */
        final Set<String> changed = new HashSet<>();
        final List<String[]> finished = new ArrayList<>();

        Task(JsonNode claimed) {
            name = claimed.get("task").asText();
            epoch = claimed.get("epoch").asLong();
            seq = claimed.get("seq").asLong();
            partition = new TopicPartition(FRAGMENTS, claimed.get("partition").asInt());
            next = claimed.get("next").get(FRAGMENTS).asLong();
        }

        /** The value of a fragment is SESSION NUMBER ACTION. */
        void take(ConsumerRecord<String, String> record) {
            String[] words = record.value().split(" ", 3);
            clock = Math.max(clock, record.timestamp());
            finishSilent();
            Open before = open.remove(words[0]);
            String action = words[1] + ":" + words[2];
            String actions = before == null ? action : before.actions + " " + action;
            if (words[2].equals("END")) {
                finished.add(new String[] {words[0], "END " + actions});
            } else {
                open.put(words[0], new Open(record.timestamp(), actions));
            }
            changed.add(words[0]);
            next = record.offset() + 1;
        }

        private void finishSilent() {
            for (var entries = open.entrySet().iterator(); entries.hasNext();) {
                var oldest = entries.next();
                if (clock - oldest.getValue().last <= SILENCE_MS) {
                    return;
                }
                finished.add(new String[] {oldest.getKey(), "TIMEOUT " + oldest.getValue().actions});
                changed.add(oldest.getKey());
                entries.remove();
            }
        }

        /** The commit for what was done since the last one. */
        ObjectNode commit() {
            ObjectNode commit = JSON.createObjectNode().put("task", name).put("epoch", epoch).put("seq", ++seq).put("next", next);
            ArrayNode put = commit.putObject("put").putArray("open");
            ArrayNode delete = commit.putObject("delete").putArray("open");
            for (String session : changed) {
                Open now = open.get(session);
                if (now == null) {
                    delete.add(session);
                } else {
                    put.addArray().add(session).addObject().put("last", now.last).put("actions", now.actions);
                }
            }
            ArrayNode emit = commit.putArray("emit");
            for (String[] result : finished) {
                byte[] value = result[1].getBytes(StandardCharsets.UTF_8);
                emit.addObject().put("topic", RESULTS).put("key", result[0])
                        .put("value_base64", Base64.getEncoder().encodeToString(value));
            }
            changed.clear();
            finished.clear();
            return commit;
        }
    }

    /** The broker has said no. */
    private static final class Refused extends RuntimeException {
        final String code;

        Refused(JsonNode problem) {
            super(problem.path("code").asText() + ": " + problem.path("detail").asText());
            code = problem.path("code").asText();
        }
    }

    private final HttpClient http = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build();
    private final String app;
    private final String worker;
    private final KafkaConsumer<String, String> consumer;
    private final Map<TopicPartition, Task> tasks = new TreeMap<>((one, other) -> one.partition() - other.partition());
    private CompletableFuture<Void> storing = CompletableFuture.completedFuture(null);
    private String token = "";
    private long after;

    private Sessions(String server, String kafka, String name) {
        app = server + "/v1/apps/session-assembly";
        worker = app + "/workers/" + name + "/";
        consumer = new KafkaConsumer<>(Map.of(
                "bootstrap.servers", kafka,
                "key.deserializer", StringDeserializer.class,
                "value.deserializer", StringDeserializer.class,
                "auto.offset.reset", "none",
                "max.poll.records", RECORDS_MAX));
    }

    public static void main(String[] given) throws Exception {
        String[] otherwise = {"http://127.0.0.1:7070", "127.0.0.1:9092", "java-" + ProcessHandle.current().pid(), "10000"};
        for (int at = 0; at < given.length; at++) {
            otherwise[at] = given[at];
        }
        Sessions sessions = new Sessions(otherwise[0], otherwise[1], otherwise[2]);
        sessions.declare(Integer.parseInt(otherwise[3]));
        while (true) {
            try {
                sessions.join();
                while (true) {
                    sessions.turn();
                }
            } catch (Refused refused) {
                // What was done since the last commits never happened: begin again at these.
                System.err.println(refused.getMessage());
                Thread.sleep(100);
            }
        }
    }

    private void declare(int timeoutMs) throws InterruptedException {
        ObjectNode definition = JSON.createObjectNode().put("worker_timeout_ms", timeoutMs).put("splittable", false);
        definition.putArray("topics").add(FRAGMENTS);
        definition.putObject("tables").putObject("open");
        ask("PUT", app, definition);
    }

    private void join() throws InterruptedException {
        settle();
        tasks.clear();
        consumer.assign(List.of());
        JsonNode joined = ask("POST", worker + "join", JSON.createObjectNode().put("deliver", false));
        token = joined.get("token").asText();
        after = 0;
        for (JsonNode held : joined.get("resumed")) {
            // It comes again as an event, under a new epoch.
            release(held.get("task").asText(), held.get("epoch").asLong());
        }
    }

    /** Takes events, reads some records, works, and commits for all tasks at once. */
    private void turn() throws InterruptedException {
        long end = System.nanoTime() + POLL_EVERY_NS;
        takeEvents();
        if (tasks.isEmpty()) {
            return;
        }
        do {
            Set<Task> touched = new HashSet<>();
            for (var record : consumer.poll(Duration.ofMillis(10))) {
                Task task = tasks.get(new TopicPartition(record.topic(), record.partition()));
                task.take(record);
                touched.add(task);
            }
            if (!touched.isEmpty()) {
                ObjectNode commits = JSON.createObjectNode();
                ArrayNode all = commits.putArray("tasks");
                // The next records are read and worked on while these are stored.
                settle();
                touched.forEach(task -> all.add(task.commit()));
                storing = CompletableFuture.runAsync(() -> store(commits));
            }
        } while (System.nanoTime() < end);
    }

    private void store(ObjectNode commits) {
        try {
            ask("POST", worker + "commit", commits);
        } catch (InterruptedException stopped) {
            Thread.currentThread().interrupt();
        }
    }

    /** Waits until what is under way is stored. */
    private void settle() {
        CompletableFuture<Void> before = storing;
        storing = CompletableFuture.completedFuture(null);
        try {
            before.join();
        } catch (java.util.concurrent.CompletionException failed) {
            if (failed.getCause() instanceof Refused refused) {
                throw refused;
            }
            throw failed;
        }
    }

    private void takeEvents() throws InterruptedException {
        ObjectNode poll = JSON.createObjectNode().put("after", after).put("wait_ms", tasks.isEmpty() ? 200 : 0);
        for (JsonNode event : ask("POST", worker + "poll", poll).get("events")) {
            after = event.get("number").asLong();
            TopicPartition partition = new TopicPartition(FRAGMENTS, Integer.parseInt(event.get("task").asText()));
            if (event.get("event").asText().equals("claimed")) {
                begin(new Task(event));
            } else {
                settle();
                Task ended = tasks.remove(partition);
                consumer.assign(tasks.keySet());
                if (ended != null && event.get("event").asText().equals("revoke")) {
                    release(ended.name, ended.epoch);
                }
            }
        }
    }

    /** Reads the open sessions of a task, in the order of their newest fragments, and begins at its place. */
    private void begin(Task task) throws InterruptedException {
        ObjectNode scan = JSON.createObjectNode().put("task", task.name).put("epoch", task.epoch).put("table", "open").put("count", 10_000);
        List<Map.Entry<String, Open>> found = new ArrayList<>();
        JsonNode page;
        do {
            page = ask("POST", worker + "scan", scan);
            for (JsonNode entry : page.get("entries")) {
                JsonNode value = entry.get("value");
                found.add(Map.entry(entry.get("key").asText(), new Open(value.get("last").asLong(), value.get("actions").asText())));
            }
            scan.set("after", page.get("next"));
        } while (!page.get("next").isNull());
        found.sort((one, other) -> Long.compare(one.getValue().last, other.getValue().last));
        found.forEach(entry -> task.open.put(entry.getKey(), entry.getValue()));
        tasks.put(task.partition, task);
        consumer.assign(tasks.keySet());
        consumer.seek(task.partition, task.next);
        System.out.println("task " + task.name + " from " + task.next + ", " + task.open.size() + " sessions open");
    }

    private void release(String task, long epoch) throws InterruptedException {
        ask("POST", worker + "release", JSON.createObjectNode().put("task", task).put("epoch", epoch));
    }

    /** Sends a request until it is answered: each may be repeated. */
    private JsonNode ask(String method, String url, JsonNode body) throws InterruptedException {
        while (true) {
            try {
                HttpRequest request = HttpRequest.newBuilder(URI.create(url))
                        .header("Content-Type", "application/json")
                        .header("Stafett-Worker", token)
                        .method(method, HttpRequest.BodyPublishers.ofByteArray(JSON.writeValueAsBytes(body)))
                        .build();
                var response = http.send(request, BodyHandlers.ofByteArray());
                JsonNode answer = JSON.readTree(response.body());
                if (response.statusCode() < 400) {
                    return answer;
                }
                if (response.statusCode() < 500) {
                    throw new Refused(answer);
                }
                System.err.println(answer);
            } catch (IOException lost) {
                System.err.println(url + ": " + lost);
            }
            Thread.sleep(100);
        }
    }
}
