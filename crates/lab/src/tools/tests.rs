//! Loads on tools that are scripts of `sh`, in the place of those of `tools/peers`.
//!
//! - [`command_lines`]: what tools are started with; [`printed`]: what the real ones print

mod command_lines;
mod printed;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::sync::{Arc, Mutex};

use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::experiment::Source;
use crate::workload::load::Second;

fn plan(text: &str) -> Plan {
    let source = Source {
        place: "x".to_owned(),
        text: format!("question = \"?\"\nsystems = [\"stafett\"]\n{text}"),
    };
    source.plan(1.0, &BTreeMap::new()).unwrap()
}

const QUEUES: &str =
    "[run]\nduration = \"4s\"\nwarmup = \"1s\"\ndriver = \"tool\"\n[topics.main]\nkind = \"queue\"\n";
const TOPICS: &str =
    "[run]\nduration = \"2s\"\nwarmup = \"2s\"\ndriver = \"tool\"\n[topics.main]\npartitions = 6\n";
const CONFIRMS: &str =
    "[roles.p]\ndoes = \"produce\"\nwindow = 500\n[roles.c]\ndoes = \"consume\"\nprefetch = 500";
const SIMPLE: &str = "[roles.p]\ndoes = \"produce\"\n[roles.c]\ndoes = \"consume\"";

fn near(found: f64, expected: f64) {
    assert!(
        (found - expected).abs() < 1e-3 * expected.max(1.0),
        "{found} and not {expected}"
    );
}

/// A tool that is a script of `sh`, which has the tool's arguments as its own.
struct Fake {
    folder: TempDir,
    stop: CancellationToken,
    seen: Arc<Mutex<Vec<Second>>>,
    /// Nobody has to wait for a load.
    is_hasty: bool,
}

impl Fake {
    fn new(script: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let fake = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tools/tests/fake");
        for name in ["rabbitmq", "kafka"] {
            symlink(fake, folder.path().join(name)).unwrap();
        }
        let text = format!("[ $1 = tool ] && {{ echo 1.2.3; exit; }}\n{script}\n");
        fs::write(folder.path().join("script"), text).unwrap();
        Self {
            folder,
            stop: CancellationToken::new(),
            seen: Arc::default(),
            is_hasty: false,
        }
    }

    async fn run(&self, text: &str, protocol: Protocol) -> Result<Loaded, DriverError> {
        let logs = self.folder.path().join("logs");
        let tool = Tool::find(protocol, Some(self.folder.path()), &logs)
            .await
            .unwrap();
        assert_eq!(tool.version, "1.2.3");
        let seen = Arc::clone(&self.seen);
        let order = Order {
            plan: Arc::new(plan(text)),
            system: "stafett".to_owned(),
            address: "h:1".to_owned(),
            tag: "1".to_owned(),
            topic_settings: Vec::new(),
            brokers: vec![std::process::id()],
            stop: self.stop.clone(),
            on_second: Box::new(move |second| seen.lock().unwrap().push(*second)),
        };
        if self.is_hasty {
            tokio::time::pause();
        }
        tool.run(&order, &logs).await
    }

    async fn fails(&self, text: &str, protocol: Protocol) -> String {
        self.run(text, protocol).await.unwrap_err().to_string()
    }
}

fn second_of(time: &str, rate: u32, p99: u32) -> String {
    format!(
        "echo 'id: lab, time {time} s, sent: {rate} msg/s, confirmed: {rate} msg/s, nacked: 0 msg/s, received: {rate} msg/s, \
         min/median/75th/95th/99th consumer latency: 10/20/30/40/{p99} µs, confirm latency: 10/20/30/40/50 µs'\n"
    )
}

const IN_TIME: &str = "echo 'test stopped (Reached time limit)'\n";

#[tokio::test]
async fn a_load_is_what_the_tool_tells_without_its_warm_up() {
    let mut script = "echo 'id: lab, starting consumer #0'\n".to_owned();
    for (second, rate) in [(1, 5), (2, 1000), (3, 2000), (4, 2000), (5, 3000), (6, 9)] {
        script += &second_of(
            &format!("{second}.000"),
            rate,
            if second == 5 { 9000 } else { 100 },
        );
    }
    let fake = Fake::new(&(script + IN_TIME));
    let text = format!("{QUEUES}{CONFIRMS}");
    let loaded = fake.run(&text, Protocol::Amqp).await.unwrap();
    assert_eq!((loaded.warmup_s, loaded.measured_s), (1.0, 4.0));
    let [consumers, producers] = loaded.roles.as_slice() else {
        panic!("{:?}", loaded.roles);
    };
    assert_eq!(
        (producers.counts.acknowledged, producers.totals.acknowledged),
        (8000, 8014)
    );
    assert_eq!((producers.rate, producers.bytes_rate), (2000.0, 200_000.0));
    assert_eq!((consumers.rate, consumers.counts.received), (2000.0, 8000));
    assert_eq!(
        (producers.samples.len(), producers.samples[4].p99_us),
        (6, Some(50))
    );
    assert!(producers.latencies.is_empty(), "there is no histogram");
    let told = loaded.told.unwrap();
    assert!((told["acknowledged_p99_us"] - 50.0).abs() < 1e-6);
    assert!(
        told["delivery_p99_us"] > 1000.0,
        "the slow second is seen: {told:?}"
    );
    assert!((told["acknowledged_p50_us"] - 20.0).abs() < 1e-6);
    assert!(!told.contains_key("acknowledged_mean_us"));
    assert!(loaded.remarks[0].contains("PerfTest's own figures"));
    let seen = fake.seen.lock().unwrap();
    assert_eq!((seen.len(), seen[1].p99_us, seen[1].of_s), (6, Some(50), 5.0));
}

#[tokio::test]
async fn seconds_without_a_line_had_no_messages() {
    let script = second_of("1.000", 1000, 50) + &second_of("3.000", 500, 50) + IN_TIME;
    let loaded = Fake::new(&script)
        .run(&format!("{QUEUES}{CONFIRMS}"), Protocol::Amqp)
        .await
        .unwrap();
    let rates: Vec<f64> = loaded.roles.iter().map(|role| role.rate).collect();
    // 500 per second in two of four seconds, nothing in the others.
    assert_eq!(rates, [250.0, 250.0]);
}

#[tokio::test]
async fn kafkas_tools_are_ended_when_both_have_told_enough() {
    let script = "case $2 in\n\
         ProducerPerformance)\n\
         echo '1 records sent, 0.5 records/sec (0.00 MB/sec), 1763.0 ms avg latency, 1763.0 ms max latency.'\n\
         echo '2000000 records sent, 2000.0 records/sec (0.29 MB/sec), 4.0 ms avg latency, 30.0 ms max latency.' ;;\n\
         *)\n\
         echo 'time, threadId, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec'\n\
         echo '2026-11-22 06:34:30:468, 0, 0.0001, 0.0001, 1, 0.6739, 1356, 128, 0.0007, 7.8125'\n\
         echo '2026-11-22 06:35:31:483, 0, 0.4, 0.1, 600001, 1000.0000, 0, 900, 0.1, 1.0' ;;\n\
         esac\nexec sleep 1000";
    let loaded = Fake::new(script)
        .run(&format!("{TOPICS}{SIMPLE}"), Protocol::Kafka)
        .await
        .unwrap();
    let [consumers, producers] = loaded.roles.as_slice() else {
        panic!("{:?}", loaded.roles);
    };
    assert_eq!(producers.counts.acknowledged, 4000);
    near(producers.rate, 2000.0);
    near(consumers.rate, 1000.0);
    let last = producers.samples.last().unwrap();
    assert_eq!(last.max_us, Some(30_000));
    let told = loaded.told.unwrap();
    assert!((told["acknowledged_mean_us"] - 4000.0).abs() < 1e-6, "{told:?}");
    assert!(
        !told
            .keys()
            .any(|name| name.contains("p99") || name.contains("delivery")),
        "{told:?}"
    );
}

#[tokio::test]
async fn kafkas_percentiles_are_those_of_its_steady_state() {
    let script = "[ $2 = ProducerPerformance ] || exec sleep 1000\n\
         echo '2700 records sent, 1000.0 records/sec (0.10 MB/sec), 90.0 ms avg latency, 300.0 ms max latency.'\n\
         echo 'In steady state.'\n\
         echo '20000 records sent, 1000.0 records/sec (0.10 MB/sec), 1.0 ms avg latency, 20.0 ms max latency.'\n\
         echo '4000 records sent, 999.200639 records/sec (0.10 MB/sec), 20.59 ms avg latency, 300.00 ms max latency, 1 ms 50th, 2 ms 95th, 300 ms 99th, 300 ms 99.9th.'\n\
         echo '3000 steady state records sent, 999.200639 records/sec (0.10 MB/sec), 0.59 ms avg latency, 20.00 ms max latency, 1 ms 50th, 2 ms 95th, 3 ms 99th, 9 ms 99.9th.'";
    let fixed = SIMPLE.replace("\"produce\"", "\"produce\"\nrate = { fixed = 1000 }");
    let fixed = fixed.replace("\n[roles.c]\ndoes = \"consume\"", "");
    let loaded = Fake::new(script)
        .run(&format!("{TOPICS}{fixed}"), Protocol::Kafka)
        .await
        .unwrap();
    near(loaded.roles[0].rate, 1000.0);
    let told = loaded.told.unwrap();
    for (name, expected) in [
        ("mean", 590.0),
        ("p50", 1e3),
        ("p95", 2e3),
        ("p99", 3e3),
        ("p999", 9e3),
    ] {
        near(told[&format!("acknowledged_{name}_us")], expected);
    }
}

#[tokio::test]
async fn a_tool_that_dies_is_quoted() {
    let text = format!("{QUEUES}{CONFIRMS}");
    let died = "echo 'Main thread caught exception: java.net.ConnectException: refused' >&2\necho '  at com.x' >&2\nexit 1";
    assert_eq!(
        Fake::new(died).fails(&text, Protocol::Amqp).await,
        "PerfTest ended with exit status: 1: Main thread caught exception: java.net.ConnectException: refused"
    );
    let killed = Fake::new("kill -9 $$").fails(&text, Protocol::Amqp).await;
    assert!(killed.starts_with("PerfTest ended with signal: 9"), "{killed}");
    let early = second_of("1.000", 5, 50) + "echo 'test stopped (Error in producer (gone): 1)'";
    let early = Fake::new(&early).fails(&text, Protocol::Amqp).await;
    assert_eq!(
        early,
        "PerfTest ended before its time was over: Error in producer (gone): 1"
    );
    let short = Fake::new(&second_of("1.000", 5, 50))
        .fails(&text, Protocol::Amqp)
        .await;
    assert_eq!(short, "PerfTest ended after 1 s of 5 s");
    let consumer =
        "[ $2 = ProducerPerformance ] && exec sleep 1000\necho 'WARNING: Exiting before consuming enough'";
    let consumer = Fake::new(consumer)
        .fails(&format!("{TOPICS}{SIMPLE}"), Protocol::Kafka)
        .await;
    assert!(
        consumer.ends_with("ended before it was told to: WARNING: Exiting before consuming enough"),
        "{consumer}"
    );
}

#[tokio::test]
async fn a_tool_that_prints_nonsense_is_ended() {
    let text = format!("{QUEUES}{CONFIRMS}");
    for nonsense in [
        "id: lab, time x s, sent: 5 msg/s",
        "id: lab, time 1.000 s, sent: many msg/s",
        "id: lab, time 1.000 s, sent: 5 msg/s, dropped: 3 msg/s",
        "id: lab, time 1.000 s, received: 5 msg/s, min/median/75th/95th/99th consumer latency: 5/4/3/2/1 µs",
        "id: lab, time 1.000 s, received: -5 msg/s",
    ] {
        let error = Fake::new(&format!("echo '{nonsense}'\nexec sleep 1000"))
            .fails(&text, Protocol::Amqp)
            .await;
        assert_eq!(
            error,
            format!("PerfTest printed what is not understood: {nonsense}")
        );
    }
    let endless = Fake::new("yes id: lab, time | tr -d '\\n' | head -c 100000; exit 3")
        .fails(&text, Protocol::Amqp)
        .await;
    assert!(endless.contains("exit status: 3"), "{endless}");
    let topics = format!("{TOPICS}{SIMPLE}");
    let error = Fake::new("echo 'x records sent, nothing.'\nexec sleep 1000")
        .fails(&topics, Protocol::Kafka)
        .await;
    assert!(
        error.contains("printed what is not understood: x records sent, nothing."),
        "{error}"
    );
}

#[tokio::test]
async fn a_tool_that_never_ends_is_ended() {
    let mut fake = Fake::new("exec sleep 1000");
    fake.is_hasty = true;
    let error = fake.fails(&format!("{QUEUES}{CONFIRMS}"), Protocol::Amqp).await;
    assert_eq!(error, "PerfTest told of no message in its time");
}

#[tokio::test]
async fn a_load_that_is_stopped_leaves_no_program_behind() {
    let fake = Fake::new("sleep 1000 & echo $! > $(dirname $0)/child\nwait");
    let child = fake.folder.path().join("child");
    let stop = fake.stop.clone();
    let stopping = async {
        while fs::read_to_string(&child).unwrap_or_default().is_empty() {
            tokio::task::yield_now().await;
        }
        stop.cancel();
    };
    let text = format!("{QUEUES}{CONFIRMS}");
    let (loaded, ()) = tokio::join!(fake.run(&text, Protocol::Amqp), stopping);
    assert_eq!(loaded.unwrap_err().to_string(), "PerfTest was stopped");
    let pid: u32 = fs::read_to_string(&child).unwrap().trim().parse().unwrap();
    // It has ended, or is about to: a signal has reached it.
    while fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z ")) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_tool_that_is_not_there_says_how_to_get_it() {
    let folder = tempfile::tempdir().unwrap();
    let missing = Tool::find(Protocol::Amqp, None, folder.path()).await.unwrap_err();
    assert!(missing.contains("tools/peers/rabbitmq"), "{missing}");
    let fake = Fake::new("");
    let script = fake.folder.path().join("script");
    fs::write(script, "echo 'java is not installed' >&2\nexit 1").unwrap();
    let missing = Tool::find(Protocol::Kafka, Some(fake.folder.path()), folder.path())
        .await
        .unwrap_err();
    assert_eq!(
        missing,
        "Kafka's performance test cannot be run: java is not installed"
    );
}
