//! Agents on a system of known latency and capacity, in simulated time, with a way between them and their
//! controller that takes as long as it is told to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf, duplex, split};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::attend;
use super::controller::{Crew, Order};
use super::host::attend_with;
use super::protocol::{
    FromAgent, Greeting, Introduction, IntroductionReply, Machine, ORDER_BYTES_MAX, OfLoad, Reader, ToAgent,
    VERSION, send,
};
use super::session::Means;
use crate::drivers::fake::{Behaviour, Fake};
use crate::drivers::{Driver, DriverError, Drivers};
use crate::experiment::{Plan, Source};
use crate::results::RoleResult;
use crate::workload::load::Stage;
use crate::workload::together::{HostSecond, Progress, RoleProgress, RoleSecond};
use crate::workload::{Loaded, filter};

const MILLI: Duration = Duration::from_millis(1);

/// Agents, and the system that they load.
struct Lab {
    crew: Crew,
    fake: Fake,
    end: CancellationToken,
    tasks: TaskTracker,
}

/// Carries bytes from one end to the other, with a delay.
fn carry(
    (mut from, mut to): (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>),
    delay: Duration,
    tasks: &TaskTracker,
) {
    let (give, mut take) = mpsc::channel::<(Instant, Vec<u8>)>(1024);
    tasks.spawn(async move {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(length @ 1..) = from.read(&mut bytes).await {
            if give
                .send((Instant::now() + delay, bytes[..length].to_vec()))
                .await
                .is_err()
            {
                return;
            }
        }
    });
    tasks.spawn(async move {
        while let Some((at, bytes)) = take.recv().await {
            sleep_until(at).await;
            if to.write_all(&bytes).await.is_err() {
                return;
            }
        }
        let _ = to.shutdown().await;
    });
}

type End = (ReadHalf<DuplexStream>, WriteHalf<DuplexStream>);

/// Two ends with a way between them that takes so long in each direction.
fn way(delay: Duration, tasks: &TaskTracker) -> (End, End) {
    let (here, near) = duplex(64 << 10);
    let (far, there) = duplex(64 << 10);
    let ((near_read, near_write), (far_read, far_write)) = (split(near), split(far));
    carry((near_read, far_write), delay, tasks);
    carry((far_read, near_write), delay, tasks);
    (split(here), split(there))
}

impl Lab {
    /// As many agents as delays.
    async fn new(behaviour: Behaviour, delays: &[Duration]) -> Self {
        let fake = Fake::new(behaviour);
        let (end, tasks) = (CancellationToken::new(), TaskTracker::new());
        let mut ends = Vec::new();
        for delay in delays {
            let (here, (reader, writer)) = way(*delay, &tasks);
            let of_agent = fake.clone();
            let drivers: Drivers = Arc::new(move |_, _, _| Ok(Arc::new(of_agent.clone()) as Arc<dyn Driver>));
            let means = Means {
                drivers,
                reads_anywhere: true,
                precise: false,
            };
            tasks.spawn(attend_with(means, reader, writer, end.clone()));
            ends.push(here);
        }
        Self {
            crew: Crew::over(ends).await,
            fake,
            end,
            tasks,
        }
    }

    async fn run(&mut self, load: &str) -> Loaded {
        self.crew.run(order(&plan(load)), true).await.unwrap()
    }

    /// Nothing of it runs any more.
    async fn end(self) {
        let Self { crew, end, tasks, .. } = self;
        drop(crew);
        end.cancel();
        tasks.close();
        tasks.wait().await;
    }
}

/// The load that the text describes; `[run]` may be left out.
fn plan(load: &str) -> Plan {
    let source = Source::new(
        "simulated",
        format!("question = \"?\"\nsystems = [\"kafka\"]\n{load}"),
    );
    filter::before(&source.plan(1.0, &BTreeMap::new()).unwrap(), "kafka")
}

fn order(plan: &Plan) -> Order {
    Order {
        plan: Arc::new(plan.clone()),
        system: "kafka".to_owned(),
        address: String::new(),
        tag: "1".to_owned(),
        topic_settings: Vec::new(),
        brokers: Vec::new(),
        stop: CancellationToken::new(),
        on_second: Box::new(|_| ()),
        stage: Stage::default(),
    }
}

fn role<'a>(loaded: &'a Loaded, name: &str) -> &'a RoleResult {
    loaded.roles.iter().find(|role| role.name == name).unwrap()
}

#[tokio::test(start_paused = true)]
async fn two_agents_find_the_highest_rate_within_a_bound() {
    for delays in [[Duration::ZERO; 2], [MILLI, 200 * MILLI]] {
        let behaviour = Behaviour {
            latency: MILLI,
            service: MILLI,
            ..Behaviour::default()
        };
        let mut lab = Lab::new(behaviour, &delays).await;
        // As alone (`workload::calibration`), shared out among four clients.
        let loaded = lab
            .run(
                "[run]\nduration = \"120s\"\n[roles.p]\ndoes = \"produce\"\nclients = 4\n\
                 rate = { adaptive = { first = 50, p99 = \"100ms\", every = \"5s\", raise = 2.0 } }",
            )
            .await;
        let found = loaded.sustainable_rate.unwrap();
        assert!((930.0..=1020.0).contains(&found), "{found} with {delays:?}");
        assert_eq!(role(&loaded, "p").clients, 4);
        lab.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn who_sends_is_never_further_ahead_than_it_may_be_and_the_system_has_enough_to_do() {
    let behaviour = Behaviour {
        latency: 5 * MILLI,
        service: MILLI,
        ..Behaviour::default()
    };
    let mut lab = Lab::new(behaviour, &[MILLI, 100 * MILLI]).await;
    let loaded = lab
        .run(
            "[roles.p]\ndoes = \"produce\"\nclients = 3\nahead = 1000\n[roles.c]\ndoes = \"consume\"\nclients = 2",
        )
        .await;
    assert!(lab.fake.most_under_way() <= 1000, "{}", lab.fake.most_under_way());
    assert!(lab.fake.most_under_way() > 500, "{}", lab.fake.most_under_way());
    let (sent, came) = (role(&loaded, "p"), role(&loaded, "c"));
    assert!((sent.rate / 1000.0 - 1.0).abs() <= 0.02, "{}", sent.rate);
    assert_eq!(came.totals.received, sent.totals.sent);
    assert_eq!(came.totals.lost, 0);
    lab.end().await;
}

#[tokio::test(start_paused = true)]
async fn one_message_ahead_goes_round_however_far_one_of_the_hosts_is() {
    let behaviour = Behaviour {
        latency: MILLI,
        ..Behaviour::default()
    };
    let mut lab = Lab::new(behaviour, &[Duration::ZERO, Duration::from_secs(1)]).await;
    let loaded = lab
        .run(
            "[run]\nwarmup = \"0s\"\nduration = \"300s\"\n[roles.p]\ndoes = \"produce\"\nclients = 2\nahead = 1\ntotal = 40\n\
             [roles.c]\ndoes = \"consume\"",
        )
        .await;
    assert_eq!(lab.fake.most_under_way(), 1);
    assert_eq!(
        (role(&loaded, "p").totals.sent, role(&loaded, "c").totals.received),
        (40, 40)
    );
    lab.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_number_of_messages_that_several_hosts_send_has_the_rate_of_its_own_time() {
    let behaviour = Behaviour {
        latency: 5 * MILLI,
        service: MILLI,
        loses: Some(100),
        ..Behaviour::default()
    };
    let mut lab = Lab::new(behaviour, &[MILLI, 20 * MILLI]).await;
    let loaded = lab
        .run(
            "[run]\nwarmup = \"0s\"\nduration = \"30s\"\nsettle = \"3s\"\n[roles.p]\ndoes = \"produce\"\nclients = 2\nwindow = 50\n\
             total = 3000\n[roles.c]\ndoes = \"consume\"\nclients = 2",
        )
        .await;
    assert!(loaded.measured_s > 29.0, "what is lost is waited for");
    for name in ["p", "c"] {
        let rate = role(&loaded, name).rate;
        let share = if name == "c" { 0.99 } else { 1.0 };
        assert!((rate / (share * 1000.0) - 1.0).abs() <= 0.02, "{name}: {rate}");
    }
    assert_eq!(role(&loaded, "c").totals.lost, 30);
    lab.end().await;
}

const FOLLOWED: &str = "[run]\nwarmup = \"0s\"\nsettle = \"3s\"\n[topics.songs]\nkind = \"live\"\ncount = 20\n\
                        [roles.p]\ndoes = \"produce\"\nclients = 2\nrate = { fixed = 100 }\ntotal = 1000\n\
                        [roles.users]\ndoes = \"consume\"\nclients = 8\nusers = 5\nfollows = 2";

#[tokio::test(start_paused = true)]
async fn what_comes_to_several_followers_on_several_hosts_is_counted_exactly() {
    // Four follow each topic.
    for (again, loses, duplicated, lost) in [
        (3, None, 0, 0),
        (4, None, 1000, 0),
        (3, Some(100), 0, 40),
        (2, None, 0, 1000),
    ] {
        let behaviour = Behaviour {
            latency: MILLI,
            again,
            loses,
            ..Behaviour::default()
        };
        let mut lab = Lab::new(behaviour, &[MILLI, 10 * MILLI]).await;
        let loaded = lab.run(FOLLOWED).await;
        let (sent, came) = (role(&loaded, "p").totals, role(&loaded, "users").totals);
        assert_eq!(sent.acknowledged, 1000);
        assert_eq!((came.duplicated, came.lost), (duplicated, lost), "{came:?}");
        assert_eq!(came.received, 4000 - lost);
        lab.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn duplicates_are_filtered_before_a_system_that_does_not_do_it_whichever_hosts_they_come_from() {
    let behaviour = Behaviour {
        latency: MILLI,
        ..Behaviour::default()
    };
    let mut lab = Lab::new(behaviour, &[MILLI, 10 * MILLI]).await;
    let loaded = lab
        .run(
            "[run]\nwarmup = \"0s\"\nsettle = \"3s\"\n[topics.songs]\ncount = 3\nzipf = 1.0\nfilter = \"1m\"\n\
             [roles.p]\ndoes = \"produce\"\nclients = 2\nrate = { fixed = 100 }\ntotal = 1000\nduplicates = 0.3\n\
             [roles.c]\ndoes = \"consume\"\nclients = 2",
        )
        .await;
    let (sent, came) = (role(&loaded, "p").totals, role(&loaded, "c").totals);
    let filtered = role(&loaded, "songs-filter").totals;
    assert!(sent.sent > 1200, "{sent:?}");
    assert_eq!((came.received, came.duplicated, came.lost), (1000, 0, 0));
    assert_eq!(filtered.duplicated, sent.sent - 1000);
    lab.end().await;
}

#[tokio::test(start_paused = true)]
async fn messages_that_are_sent_twice_are_waited_for_and_counted() {
    let behaviour = Behaviour {
        latency: MILLI,
        loses: Some(101),
        ..Behaviour::default()
    };
    let mut lab = Lab::new(behaviour, &[MILLI, MILLI]).await;
    let loaded = lab
        .run(
            "[run]\nwarmup = \"0s\"\nsettle = \"3s\"\n[roles.p]\ndoes = \"produce\"\nclients = 2\nrate = { fixed = 1000 }\ntotal = 5000\n\
             duplicates = 0.1\n[roles.c]\ndoes = \"consume\"\nclients = 2",
        )
        .await;
    let (sent, came) = (role(&loaded, "p").totals, role(&loaded, "c").totals);
    // As alone.
    let forgotten = sent.sent / 101;
    assert_eq!(came.received + came.duplicated + forgotten, sent.sent);
    assert_eq!(came.received + came.lost, 5000);
    assert!(came.lost > 0 && came.lost <= forgotten, "{came:?}");
    lab.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_agents_say_for_people_lies_beside_the_logs_of_the_system() {
    let mut lab = Lab::new(Behaviour::default(), &[MILLI, MILLI]).await;
    let logs = tempfile::tempdir().unwrap();
    let plan =
        plan("[run]\nduration = \"2s\"\n[roles.p]\ndoes = \"produce\"\nclients = 2\nrate = { fixed = 100 }");
    lab.crew.keep_logs(logs.path().to_owned());
    lab.crew.run(order(&plan), true).await.unwrap();
    for name in ["agent-1.log", "agent-2.log"] {
        let said = std::fs::read_to_string(logs.path().join(name)).unwrap();
        assert!(said.contains("the load begins"), "{said}");
        assert!(said.lines().last().unwrap().contains("p: 1 clients"), "{said}");
    }
    lab.end().await;
}

/// An agent that introduces itself, and connects whom it is told to.
struct Script {
    reader: Reader<ReadHalf<DuplexStream>>,
    writer: WriteHalf<DuplexStream>,
}

impl Script {
    async fn introduced((reader, mut writer): End) -> Self {
        let greeting = Greeting {
            protocol: VERSION,
            version: String::new(),
            needs_secret: false,
            challenge: String::new(),
        };
        send(&mut writer, &greeting).await.unwrap();
        let mut reader = Reader::new(reader, ORDER_BYTES_MAX);
        let _: Introduction = reader.next().await.unwrap();
        let welcome = IntroductionReply::Welcome {
            proof: None,
            machine: Machine::default(),
        };
        send(&mut writer, &welcome).await.unwrap();
        Self { reader, writer }
    }

    async fn say(&mut self, said: &FromAgent) {
        send(&mut self.writer, said).await.unwrap();
    }

    /// Answers until an order comes that is waited for.
    async fn until(&mut self, is_it: impl Fn(&ToAgent) -> bool) {
        loop {
            let order: ToAgent = self.reader.next().await.unwrap();
            if let ToAgent::Ping(number) = order {
                self.say(&FromAgent::Pong(number)).await;
            } else if is_it(&order) {
                return;
            }
        }
    }
}

fn second_of(acknowledged: u64, changes: u64) -> FromAgent {
    numbered(0, acknowledged, changes)
}

fn numbered(number: u64, acknowledged: u64, changes: u64) -> FromAgent {
    let mut role = RoleSecond {
        sample: crate::results::RateSample::default(),
        histogram: String::new(),
        changes,
    };
    role.sample.acknowledged = acknowledged;
    FromAgent::Load {
        load: 1,
        said: OfLoad::Seconds(HostSecond {
            number,
            roles: vec![role],
        }),
    }
}

fn progress_of(made: u64) -> FromAgent {
    FromAgent::Load {
        load: 1,
        said: OfLoad::Progress(Progress {
            connected: Some(Duration::ZERO),
            is_sent: false,
            roles: vec![RoleProgress {
                made,
                ..RoleProgress::default()
            }],
        }),
    }
}

const ADAPTIVE: &str =
    "[roles.p]\ndoes = \"produce\"\nrate = { adaptive = { first = 50, p99 = \"1s\", every = \"5s\" } }";

#[tokio::test(start_paused = true)]
async fn an_agent_that_says_what_cannot_be_is_the_points_result() {
    let beyond = "went away: it told what cannot be: 18446744073709551615";
    for (said, says) in [
        (second_of(u64::MAX, 0), beyond),
        (second_of(1, 7), "7 changes of the rate of `p`, of 0"),
        (progress_of(u64::MAX), beyond),
        (numbered(7000, 1, 0), "second number 7000 where 0 is the next one"),
    ] {
        let tasks = TaskTracker::new();
        let (here, there) = way(MILLI, &tasks);
        let script = async move {
            let mut script = Script::introduced(there).await;
            script.until(|order| matches!(order, ToAgent::Prepare(_))).await;
            script.say(&progress_of(0)).await;
            script.until(|order| *order == ToAgent::Begin).await;
            script.say(&said).await;
            // Until the controller goes, or gives it up.
            while let Ok(order) = script.reader.next::<ToAgent>().await {
                if order == ToAgent::Abandon {
                    break;
                }
            }
        };
        let controller = async {
            let mut crew = Crew::over(vec![here]).await;
            crew.run(order(&plan(ADAPTIVE)), true).await.unwrap_err()
        };
        let (error, ()) = tokio::join!(controller, script);
        assert!(matches!(error, DriverError::Failed(_)), "{error:?}");
        assert!(error.to_string().starts_with("agent `1` at h:1 "), "{error}");
        assert!(error.to_string().contains("told what cannot be"), "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_takes_its_time_is_the_points_result_and_not_the_end_of_the_run() {
    let tasks = TaskTracker::new();
    let (here, there) = way(MILLI, &tasks);
    let script = async move {
        let mut script = Script::introduced(there).await;
        script.until(|order| matches!(order, ToAgent::Prepare(_))).await;
        script.say(&progress_of(0)).await;
        // It is there, and never comes to an end.
        script.until(|order| *order == ToAgent::Abandon).await;
    };
    let controller = async {
        let mut crew = Crew::over(vec![here]).await;
        crew.run(order(&plan(ADAPTIVE)), true).await.unwrap_err()
    };
    let (error, ()) = tokio::join!(controller, script);
    assert_eq!(error.to_string(), "the agents did not come to an end");
}

#[tokio::test(start_paused = true)]
async fn an_agent_ends_a_controller_that_asks_for_no_rate() {
    for rate in [0.0, -5.0, 1e300] {
        let (here, there) = duplex(64 << 10);
        let tasks = TaskTracker::new();
        let drivers: Drivers = Arc::new(|_, _, _| Err("nothing is driven here".to_owned()));
        let (reader, writer) = split(there);
        let agent = tasks.spawn(attend(reader, writer, drivers, CancellationToken::new()));
        let (reader, mut writer) = split(here);
        let mut reader = Reader::new(reader, ORDER_BYTES_MAX);
        let _: Greeting = reader.next().await.unwrap();
        let introduction = Introduction {
            protocol: VERSION,
            version: String::new(),
            proof: None,
            challenge: String::new(),
        };
        send(&mut writer, &introduction).await.unwrap();
        let nonsense = ToAgent::Rate {
            role: "p".to_owned(),
            rate,
        };
        send(&mut writer, &nonsense).await.unwrap();
        let why = agent.await.unwrap();
        assert!(why.contains("a rate of"), "{why}");
    }
}
