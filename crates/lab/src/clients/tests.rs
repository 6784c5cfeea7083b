//! A program with a client of known latency and capacity at the other end of two pipes, and programs that
//! fail.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use stafett_model::Lock;
use tokio::io::{DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::agents::attend;
use crate::agents::protocol::{Greeting, Introduction, IntroductionReply, Machine, Reader, VERSION, send};
use crate::drivers::fake::{Behaviour, Fake};
use crate::drivers::{Driver, Drivers};
use crate::experiment::Source;
use crate::workload::load::{Second, Stage};

const CLOSED: &str = "question = \"?\"\nsystems = [\"kafka\"]\n[run]\nduration = \"5s\"\nwarmup = \"1s\"\ndriver = \"client\"\n\
                      [roles.producers]\ndoes = \"produce\"\nclients = 2\nwindow = 100\n\
                      [roles.consumers]\ndoes = \"consume\"";

fn plan(text: &str) -> Plan {
    let source = Source::new("x", text);
    source.plan(1.0, &BTreeMap::new()).unwrap()
}

fn order(plan: Plan, stop: &CancellationToken, seen: &Arc<Lock<Vec<Second>>>) -> Order {
    let seen = Arc::clone(seen);
    Order {
        plan: Arc::new(plan),
        system: "kafka".to_owned(),
        address: String::new(),
        tag: "1".to_owned(),
        topic_settings: Vec::new(),
        brokers: Vec::new(),
        stop: stop.clone(),
        on_second: Box::new(move |second| seen.lock().push(*second)),
        stage: Stage::default(),
    }
}

/// A program on the fake system, that ends when it is told to.
async fn program(behaviour: Behaviour, stop: &CancellationToken, tasks: &TaskTracker) -> Client {
    let fake = Fake::new(behaviour);
    let drivers: Drivers = Arc::new(move |system, _, _| match system {
        "kafka" => Ok(Arc::new(fake.clone()) as Arc<dyn Driver>),
        other => Err(format!("`{other}` is not driven here")),
    });
    let (here, there) = duplex(64 << 10);
    let stop = stop.clone();
    tasks.spawn(async move {
        let (reader, writer) = split(there);
        attend(reader, writer, drivers, stop).await
    });
    let (reader, writer) = split(here);
    Client::over(reader, writer).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_load_in_another_program_gives_what_the_system_gives() {
    let behaviour = Behaviour {
        latency: Duration::from_millis(2),
        service: Duration::from_millis(1),
        ..Behaviour::default()
    };
    let (end, stop, tasks) = <(CancellationToken, CancellationToken, TaskTracker)>::default();
    let mut client = program(behaviour, &end, &tasks).await;
    let described = client.describe("kafka", &plan(CLOSED)).await.unwrap();
    assert_eq!((described.name.as_str(), described.lacks), ("fake", None));
    let seen = Arc::default();
    let loaded = client
        .run(order(plan(CLOSED), &stop, &seen), false)
        .await
        .unwrap();
    assert!((loaded.measured_s - 5.0).abs() < 0.01, "{}", loaded.measured_s);
    assert_eq!(seen.lock().len(), 6, "it is told of every second");
    let [consumers, producers] = loaded.roles.as_slice() else {
        panic!("{:?}", loaded.roles);
    };
    assert!((producers.rate / 1000.0 - 1.0).abs() < 0.02, "{}", producers.rate);
    assert_eq!(producers.totals.acknowledged, producers.totals.sent);
    assert_eq!(consumers.totals.received, producers.totals.sent);
    assert_eq!((consumers.totals.lost, consumers.totals.duplicated), (0, 0));
    assert!(consumers.latencies.contains_key("delivery"));
    let again = client
        .run(order(plan(CLOSED), &stop, &seen), false)
        .await
        .unwrap();
    assert!(
        again.measured_s > 4.9,
        "one program runs one load after the other"
    );
    client.end().await;
    tasks.close();
    tasks.wait().await;
}

#[tokio::test(start_paused = true)]
async fn what_another_program_lost_is_lost_and_what_it_does_not_drive_is_said() {
    let behaviour = Behaviour {
        latency: Duration::from_millis(1),
        service: Duration::from_micros(100),
        loses: Some(100),
        ..Behaviour::default()
    };
    let (end, stop, tasks) = <(CancellationToken, CancellationToken, TaskTracker)>::default();
    let mut client = program(behaviour, &end, &tasks).await;
    let total = CLOSED
        .replace("window = 100", "window = 100\ntotal = 1000")
        .replace("warmup = \"1s\"", "warmup = \"0s\"");
    let loaded = client
        .run(order(plan(&total), &stop, &Arc::default()), true)
        .await
        .unwrap();
    let lost: u64 = loaded.roles.iter().map(|role| role.totals.lost).sum();
    assert_eq!(lost, 10);
    let described = client.describe("rabbitmq", &plan(CLOSED)).await.unwrap();
    assert_eq!(described.lacks.unwrap(), "`rabbitmq` is not driven here");
    let wrong = Order {
        system: "rabbitmq".to_owned(),
        ..order(plan(CLOSED), &stop, &Arc::default())
    };
    let error = client.run(wrong, true).await.unwrap_err();
    assert!(matches!(error, DriverError::Refused(_)), "{error}");
}

#[tokio::test(start_paused = true)]
async fn another_program_puts_the_filter_before_a_system_that_has_none() {
    let (end, stop, tasks) = <(CancellationToken, CancellationToken, TaskTracker)>::default();
    let behaviour = Behaviour {
        service: Duration::from_micros(100),
        ..Behaviour::default()
    };
    let mut client = program(behaviour, &end, &tasks).await;
    let text = CLOSED
        .replace("window = 100", "window = 100\ntotal = 1000\nduplicates = 0.5")
        .replace("warmup = \"1s\"", "warmup = \"0s\"");
    let filtered = filter::before(&plan(&format!("{text}\n[topics.main]\nfilter = \"1m\"")), "kafka");
    let described = client.describe("kafka", &filtered).await.unwrap();
    assert_eq!(described.lacks, None);
    let loaded = client
        .run(order(filtered, &stop, &Arc::default()), true)
        .await
        .unwrap();
    let role = |name: &str| &loaded.roles.iter().find(|role| role.name == name).unwrap().totals;
    let (sent, came) = (role("producers"), role("consumers"));
    assert_eq!((came.received, came.duplicated, came.lost), (1000, 0, 0));
    assert_eq!(role("main-filter").duplicated, sent.sent - 1000);
}

#[tokio::test(start_paused = true)]
async fn a_load_that_is_stopped_tells_what_came_until_then() {
    let (end, stop, tasks) = <(CancellationToken, CancellationToken, TaskTracker)>::default();
    let behaviour = Behaviour {
        service: Duration::from_micros(100),
        ..Behaviour::default()
    };
    let mut client = program(behaviour, &end, &tasks).await;
    let long = CLOSED.replace("duration = \"5s\"", "duration = \"1h\"");
    let stopping = stop.clone();
    tasks.spawn(async move {
        tokio::time::sleep(Duration::from_secs(4)).await;
        stopping.cancel();
        String::new()
    });
    let loaded = client
        .run(order(plan(&long), &stop, &Arc::default()), true)
        .await
        .unwrap();
    assert!(loaded.measured_s < 10.0, "{}", loaded.measured_s);
}

#[tokio::test(start_paused = true)]
async fn a_program_that_goes_in_the_middle_of_a_load_is_the_loads_result() {
    let (end, stop, tasks) = <(CancellationToken, CancellationToken, TaskTracker)>::default();
    let behaviour = Behaviour {
        service: Duration::from_micros(100),
        ..Behaviour::default()
    };
    let mut client = program(behaviour, &end, &tasks).await;
    let ending = end.clone();
    tasks.spawn(async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        ending.cancel();
        String::new()
    });
    let error = client
        .run(order(plan(CLOSED), &stop, &Arc::default()), true)
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), "the client program: the connection ended");
}

/// Introduces itself as a client program does, and says nothing after that.
async fn introduced(there: DuplexStream) -> (Reader<ReadHalf<DuplexStream>>, WriteHalf<DuplexStream>) {
    let (reader, mut writer) = split(there);
    let greeting = Greeting {
        protocol: VERSION,
        version: String::new(),
        needs_secret: false,
        challenge: String::new(),
    };
    send(&mut writer, &greeting).await.unwrap();
    let mut reader = Reader::new(reader, 4096);
    let _: Introduction = reader.next().await.unwrap();
    let welcome = IntroductionReply::Welcome {
        proof: None,
        machine: Machine::default(),
    };
    send(&mut writer, &welcome).await.unwrap();
    (reader, writer)
}

#[tokio::test(start_paused = true)]
async fn a_program_that_falls_silent_is_given_up() {
    let (here, there) = duplex(64 << 10);
    let (reader, writer) = split(here);
    let (client, silent) = tokio::join!(Client::over(reader, writer), introduced(there));
    let mut client = client.unwrap();
    let error = client.describe("kafka", &plan(CLOSED)).await.unwrap_err();
    assert!(error.to_string().contains("it said nothing for 10 s"), "{error}");
    let stop = CancellationToken::new();
    let error = client
        .run(order(plan(CLOSED), &stop, &Arc::default()), true)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("it said nothing for 15 s"), "{error}");
    drop(silent);
}

/// Result of a load with a script in the program's place.
async fn script(text: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("sh");
    command.args(["-c", text]);
    let started = Client::spawn(command, &folder.path().join("logs")).await;
    started.unwrap_err().to_string()
}

#[tokio::test]
async fn a_program_that_dies_is_quoted() {
    let said = script("echo librdkafka.so is not there >&2; exit 3").await;
    assert_eq!(
        said,
        "the client program: it ended with exit status: 3: librdkafka.so is not there"
    );
    let said = script("kill -9 $$").await;
    assert!(said.contains("it ended with signal: 9"), "{said}");
}

#[tokio::test]
async fn a_program_that_says_nonsense_is_ended() {
    let said = script("echo hello, this is another program; exec sleep 1000").await;
    assert!(said.contains("the client program: a frame of"), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_program_that_says_nothing_is_ended() {
    let said = script("exec sleep 1000").await;
    assert_eq!(said, "the client program: it said nothing for 10 s");
}

#[test]
fn the_program_is_the_one_that_is_named_or_lies_beside_this_one() {
    let folder = tempfile::tempdir().unwrap();
    let exe = folder.path().join("stafett");
    let missing = find(None, &exe).unwrap_err();
    assert!(missing.contains("`make lab-clients`"), "{missing}");
    let beside = folder.path().join(PROGRAM);
    fs::write(&beside, "").unwrap();
    assert_eq!(find(None, &exe), Ok(beside));
    let other = folder.path().join("other");
    assert!(find(Some(&other), &exe).unwrap_err().contains("--clients"));
    fs::write(&other, "").unwrap();
    assert_eq!(find(Some(&other), &exe), Ok(other));
}
