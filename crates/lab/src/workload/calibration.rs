//! The instrument against a system whose latency and capacity are known, in simulated time: it reports them within 2 %.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::drivers::fake::{Behaviour, Fake};
use crate::experiment::Source;
use crate::results::{Latencies, RoleResult};
use crate::run::point::destinations;
use crate::workload::{Load, Loaded};

const MILLI: Duration = Duration::from_millis(1);

/// Runs the load that the text describes; `[run]` may be left out.
async fn run(load: &str, behaviour: Behaviour) -> Loaded {
    let text = format!("question = \"?\"\nsystems = [\"stafett\"]\n{load}");
    let source = Source {
        place: "calibration".to_owned(),
        text,
    };
    let plan = source.plan(1.0, &std::collections::BTreeMap::new()).unwrap();
    let load = Load {
        contents: Load::contents(&plan).unwrap(),
        destinations: destinations(&plan, &[], "x"),
        plan: Arc::new(plan),
        driver: Arc::new(Fake::new(behaviour)),
        brokers: Vec::new(),
        seating: Arc::default(),
        together: None,
        ends_early: true,
        precise: false,
        stop: CancellationToken::new(),
        on_second: Box::new(|_| ()),
    };
    load.run().await.unwrap()
}

fn role<'a>(loaded: &'a Loaded, name: &str) -> &'a RoleResult {
    loaded.roles.iter().find(|role| role.name == name).unwrap()
}

fn latencies<'a>(loaded: &'a Loaded, name: &str, of: &str) -> &'a Latencies {
    &role(loaded, name).latencies[of]
}

#[track_caller]
fn within_2_percent(found: f64, expected: f64) {
    assert!(
        (found / expected - 1.0).abs() <= 0.02,
        "{found} instead of {expected}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_open_loop_reports_the_latency_and_the_rate_that_there_are() {
    let loaded = run(
        "[roles.p]\ndoes = \"produce\"\nclients = 4\nrate = { fixed = 500 }\n[roles.c]\ndoes = \"consume\"",
        Behaviour {
            latency: 50 * MILLI,
            ..Behaviour::default()
        },
    )
    .await;
    within_2_percent(loaded.measured_s, 10.0);
    within_2_percent(role(&loaded, "p").rate, 500.0);
    within_2_percent(role(&loaded, "c").rate, 500.0);
    for (name, of) in [("p", "acknowledged"), ("c", "delivery")] {
        let latencies = latencies(&loaded, name, of);
        within_2_percent(latencies.p50_us as f64, 50_000.0);
        within_2_percent(latencies.p99_us as f64, 50_000.0);
    }
    assert_eq!(
        role(&loaded, "c").totals.received,
        role(&loaded, "p").totals.acknowledged
    );
    assert_eq!(role(&loaded, "c").totals.lost, 0);
    assert_eq!(
        role(&loaded, "p").samples.len(),
        12,
        "one per second, warm-up included"
    );
}

#[tokio::test(start_paused = true)]
async fn a_closed_loop_of_one_waits_for_each_answer() {
    let loaded = run(
        "[roles.p]\ndoes = \"produce\"\nwindow = 1",
        Behaviour {
            latency: 10 * MILLI,
            ..Behaviour::default()
        },
    )
    .await;
    within_2_percent(role(&loaded, "p").rate, 100.0);
    within_2_percent(latencies(&loaded, "p", "acknowledged").p50_us as f64, 10_000.0);
}

#[tokio::test(start_paused = true)]
async fn a_closed_loop_finds_the_capacity() {
    let loaded = run(
        "[roles.p]\ndoes = \"produce\"\nclients = 4\nwindow = 25",
        Behaviour {
            latency: 5 * MILLI,
            service: MILLI,
            ..Behaviour::default()
        },
    )
    .await;
    within_2_percent(role(&loaded, "p").rate, 1000.0);
    // A hundred are under way at any time (Little's law).
    within_2_percent(latencies(&loaded, "p", "acknowledged").mean_us, 100_000.0);
}

#[tokio::test(start_paused = true)]
async fn a_stall_of_a_second_is_seen_by_every_message_that_it_held_up() {
    let load = "[run]\nwarmup = \"0s\"\n[roles.p]\ndoes = \"produce\"\nrate = { fixed = 1000 }";
    let behaviour = Behaviour {
        latency: MILLI,
        stall: Some((Duration::from_secs(5), Duration::from_secs(1))),
        ..Behaviour::default()
    };
    let loaded = run(load, behaviour).await;
    let open = latencies(&loaded, "p", "acknowledged");
    // A tenth of the messages came into the stall, evenly: one in a hundred waited 0.9 s or longer.
    within_2_percent(open.p99_us as f64, 900_000.0);
    within_2_percent(open.max_us as f64, 1_001_000.0);
    within_2_percent(open.count as f64, 10_000.0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_is_late_does_not_hide_it() {
    // The window of the system is one message at a time: arrivals are twice what it can take.
    let loaded = run(
        "[run]\nwarmup = \"0s\"\n[roles.p]\ndoes = \"produce\"\nrate = { fixed = 200 }",
        Behaviour {
            service: 10 * MILLI,
            ..Behaviour::default()
        },
    )
    .await;
    within_2_percent(role(&loaded, "p").rate, 100.0);
    // At the end half of the messages are still waiting: the last of those that count waited half of the time.
    within_2_percent(latencies(&loaded, "p", "acknowledged").max_us as f64, 5_000_000.0);
}

#[tokio::test(start_paused = true)]
async fn the_highest_rate_within_a_bound_is_the_capacity() {
    let loaded = run(
        "[run]\nduration = \"120s\"\n[roles.p]\ndoes = \"produce\"\n\
         rate = { adaptive = { first = 50, p99 = \"100ms\", every = \"5s\", raise = 2.0 } }",
        Behaviour {
            latency: MILLI,
            service: MILLI,
            ..Behaviour::default()
        },
    )
    .await;
    let found = loaded.sustainable_rate.unwrap();
    assert!((930.0..=1020.0).contains(&found), "{found}");
}

#[tokio::test(start_paused = true)]
async fn what_is_lost_and_what_comes_twice_is_counted_exactly() {
    let loaded = run(
        "[run]\nsettle = \"2s\"\n[roles.p]\ndoes = \"produce\"\nrate = { fixed = 1000 }\ntotal = 5000\n\
         duplicates = 0.1\n[roles.c]\ndoes = \"consume\"",
        Behaviour {
            latency: MILLI,
            loses: Some(101),
            ..Behaviour::default()
        },
    )
    .await;
    let (sent, came) = (role(&loaded, "p").totals, role(&loaded, "c").totals);
    assert_eq!(sent.acknowledged, sent.sent);
    let lost = sent.sent / 101;
    assert_eq!(came.received + came.duplicated + lost, sent.sent);
    assert_eq!(came.received + came.lost, 5000);
    assert!(came.lost > 0 && came.lost <= lost, "{came:?}");
}

#[tokio::test(start_paused = true)]
async fn fan_out_gives_everyone_everything_and_a_backlog_is_timed() {
    let loaded = run(
        "[run]\nwarmup = \"0s\"\nduration = \"60s\"\n[roles.fill]\ndoes = \"produce\"\nwindow = 100\ntotal = 3000\n\
         [roles.c]\ndoes = \"consume\"\nafter = \"fill\"\nwork = { each = \"0us\", message = \"2ms\", bulk = 1 }",
        Behaviour {
            service: MILLI,
            ..Behaviour::default()
        },
    )
    .await;
    assert_eq!(role(&loaded, "c").totals.received, 3000);
    assert!(loaded.measured_s < 12.0, "it ends when everything has come");
    assert!(loaded.drain_s.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_answer_takes_there_and_back() {
    let loaded = run(
        "[topics.questions]\n[topics.answers]\ncount = 5\n\
         [roles.ask]\ndoes = \"request\"\nclients = 5\ntopics = \"questions\"\nto = \"answers\"\n\
         [roles.say]\ndoes = \"respond\"\ntopics = \"questions\"\nto = \"answers\"",
        Behaviour {
            latency: 25 * MILLI,
            ..Behaviour::default()
        },
    )
    .await;
    within_2_percent(latencies(&loaded, "ask", "round_trip").p50_us as f64, 50_000.0);
    within_2_percent(role(&loaded, "ask").rate, 100.0);
    assert_eq!(role(&loaded, "ask").totals.timed_out, 0);
}

#[tokio::test(start_paused = true)]
async fn relays_hand_messages_on_for_ever() {
    let loaded = run(
        "[topics.own]\ncount = 8\n[roles.r]\ndoes = \"relay\"\nclients = 8",
        Behaviour {
            latency: 20 * MILLI,
            ..Behaviour::default()
        },
    )
    .await;
    // Eight messages go round, each 50 times a second.
    within_2_percent(role(&loaded, "r").rate, 400.0);
    within_2_percent(latencies(&loaded, "r", "delivery").p50_us as f64, 20_000.0);
}
