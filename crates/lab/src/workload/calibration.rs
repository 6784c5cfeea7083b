//! The instrument against a system whose latency and capacity are known, in simulated time: it reports them
//! within 2 %.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::drivers::fake::{Behaviour, Fake};
use crate::experiment::Source;
use crate::results::{Latencies, RoleResult};
use crate::run::point::destinations;
use crate::workload::load::Stage;
use crate::workload::{Load, Loaded};

const MILLI: Duration = Duration::from_millis(1);

/// Runs the load that the text describes; `[run]` may be left out.
async fn run(load: &str, behaviour: Behaviour) -> Loaded {
    let text = format!("question = \"?\"\nsystems = [\"stafett\"]\n{load}");
    let source = Source::new("calibration", text);
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
        stage: Stage::default(),
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
    // The window of the system is one message at a time: twice as many arrive as it can take.
    let loaded = run(
        "[run]\nwarmup = \"0s\"\n[roles.p]\ndoes = \"produce\"\nrate = { fixed = 200 }",
        Behaviour {
            service: 10 * MILLI,
            ..Behaviour::default()
        },
    )
    .await;
    within_2_percent(role(&loaded, "p").rate, 100.0);
    // At the end half of the messages are still waiting: the last one waits as long as all of the time again.
    let open = latencies(&loaded, "p", "acknowledged");
    within_2_percent(open.max_us as f64, 10_000_000.0);
    within_2_percent(open.p99_us as f64, 9_900_000.0);
    within_2_percent(open.count as f64, 2000.0);
}

/// A stall that begins in the last second, and is longer than the rest of the load.
async fn stalled_in_the_end(length: Duration, in_flight: usize) -> Loaded {
    run(
        "[run]\nwarmup = \"0s\"\n[roles.p]\ndoes = \"produce\"\nrate = { fixed = 1000 }\n[roles.c]\ndoes = \"consume\"",
        Behaviour {
            latency: MILLI,
            stall: Some((Duration::from_secs(9), length)),
            in_flight,
            ..Behaviour::default()
        },
    )
    .await
}

#[tokio::test(start_paused = true)]
async fn a_stall_that_outlasts_the_end_is_seen_by_every_message_that_it_held_up() {
    // Whether the messages wait in the system, or before it in the client.
    for in_flight in [0, 5] {
        let loaded = stalled_in_the_end(Duration::from_secs(5), in_flight).await;
        for (name, of) in [("p", "acknowledged"), ("c", "delivery")] {
            let open = latencies(&loaded, name, of);
            within_2_percent(open.p99_us as f64, 4_900_000.0);
            within_2_percent(open.max_us as f64, 5_000_000.0);
            within_2_percent(open.count as f64, 10_000.0);
            within_2_percent(open.p50_us as f64, 1000.0);
        }
        within_2_percent(role(&loaded, "p").rate, 900.0);
        assert_eq!(role(&loaded, "c").totals.lost, 0);
        // The client itself was never late.
        assert!(latencies(&loaded, "p", "lateness").p99_us < 1000);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_given_up_in_the_end_took_as_long_as_it_was_waited_for_at_least() {
    for in_flight in [0, 5] {
        let loaded = stalled_in_the_end(Duration::from_secs(1000), in_flight).await;
        let open = latencies(&loaded, "p", "acknowledged");
        assert!(open.p99_us > 29_000_000, "{open:?}");
        within_2_percent(open.count as f64, 10_000.0);
        let (sent, came) = (role(&loaded, "p").totals, role(&loaded, "c").totals);
        assert_eq!(sent.sent, sent.acknowledged + sent.failed);
        // A message that was never acknowledged is not lost.
        assert_eq!(came.lost, 0);
        assert!(sent.failed > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn what_was_meant_for_the_warm_up_does_not_count_however_late_it_is_answered() {
    let loaded = run(
        "[run]\nwarmup = \"5s\"\n[roles.p]\ndoes = \"produce\"\nrate = { fixed = 1000 }",
        Behaviour {
            latency: MILLI,
            stall: Some((Duration::from_secs(4), Duration::from_secs(1))),
            ..Behaviour::default()
        },
    )
    .await;
    let open = latencies(&loaded, "p", "acknowledged");
    within_2_percent(open.count as f64, 10_000.0);
    within_2_percent(open.max_us as f64, 1000.0);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_the_system_keeps_waiting_is_not_late_and_one_that_has_not_the_time_is() {
    let load = "[run]\nwarmup = \"0s\"\n[roles.p]\ndoes = \"produce\"\nrate = { fixed = 200 }";
    let loaded = run(
        load,
        Behaviour {
            service: 10 * MILLI,
            in_flight: 1,
            ..Behaviour::default()
        },
    )
    .await;
    assert!(latencies(&loaded, "p", "acknowledged").p99_us > 1_000_000);
    let late = latencies(&loaded, "p", "lateness");
    assert!(late.max_us <= 10_000, "{late:?}");
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
        "[run]\nwarmup = \"0s\"\nsettle = \"2s\"\n[roles.p]\ndoes = \"produce\"\nrate = { fixed = 1000 }\ntotal = 5000\n\
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
            at_once: 1,
            ..Behaviour::default()
        },
    )
    .await;
    assert_eq!(role(&loaded, "c").totals.received, 3000);
    assert!(loaded.measured_s < 12.0, "it ends when everything has come");
    assert!(loaded.drain_s.is_some());
    // Each by its own time, and not by that of both.
    within_2_percent(role(&loaded, "fill").rate, 1000.0);
    within_2_percent(role(&loaded, "c").rate, 500.0);
}

#[tokio::test(start_paused = true)]
async fn a_number_of_messages_gives_the_rate_of_its_own_time_however_long_the_load_goes_on() {
    let loaded = run(
        "[run]\nwarmup = \"0s\"\nduration = \"60s\"\n[roles.p]\ndoes = \"produce\"\nwindow = 100\ntotal = 3000\n\
         [roles.c]\ndoes = \"consume\"",
        Behaviour {
            service: MILLI,
            loses: Some(1000),
            ..Behaviour::default()
        },
    )
    .await;
    assert!(loaded.measured_s > 59.0, "what is lost is waited for");
    within_2_percent(role(&loaded, "p").rate, 1000.0);
    within_2_percent(role(&loaded, "c").rate, 1000.0);
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
async fn a_client_that_thinks_asks_as_often_as_the_law_of_response_time_says() {
    for (think, tolerance) in [("fixed", 0.02), ("exponential", 0.1)] {
        let loaded = run(
            &format!("{ASKING}\nclients = 1\nthink = {{ {think} = \"50ms\" }}"),
            Behaviour {
                latency: 25 * MILLI,
                ..Behaviour::default()
            },
        )
        .await;
        // X = N / (R + Z)
        let rate = role(&loaded, "ask").rate;
        assert!((rate / 10.0 - 1.0).abs() <= tolerance, "{think}: {rate}");
        within_2_percent(latencies(&loaded, "ask", "round_trip").p50_us as f64, 50_000.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_consumer_that_polls_is_timed_from_when_it_was_due() {
    let loaded = run(
        "[roles.p]\ndoes = \"produce\"\nrate = { fixed = 100 }\n[roles.c]\ndoes = \"consume\"\npoll = \"100ms\"",
        Behaviour {
            latency: MILLI,
            ..Behaviour::default()
        },
    )
    .await;
    let consumer = role(&loaded, "c");
    assert_eq!((consumer.totals.lost, consumer.totals.duplicated), (0, 0));
    let polls = latencies(&loaded, "c", "poll");
    // Ten a second, of the ten seconds that count.
    within_2_percent(polls.count as f64, 100.0);
    assert!(polls.p50_us <= 10_000, "{polls:?}");
}

const ASKING: &str = "[topics.questions]\n[topics.answers]\n\
                      [roles.say]\ndoes = \"respond\"\ntopics = \"questions\"\nto = \"answers\"\n\
                      [roles.ask]\ndoes = \"request\"\ntopics = \"questions\"\nto = \"answers\"";

#[tokio::test(start_paused = true)]
async fn an_answer_that_never_comes_in_time_is_in_the_latency_and_not_only_counted() {
    // A tenth of the questions, and then their answers, come into the stall.
    let loaded = run(
        &format!("[run]\nwarmup = \"0s\"\n{ASKING}\nrate = {{ fixed = 100 }}"),
        Behaviour {
            latency: MILLI,
            stall: Some((Duration::from_secs(5), Duration::from_secs(2))),
            ..Behaviour::default()
        },
    )
    .await;
    let asked = role(&loaded, "ask");
    let round_trip = &asked.latencies["round_trip"];
    within_2_percent(round_trip.count as f64, 1000.0);
    within_2_percent(asked.totals.timed_out as f64, 100.0);
    // At least the patience: the time of a missing answer is unknown.
    assert!(round_trip.p99_us >= 1_000_000, "{round_trip:?}");
    within_2_percent(round_trip.p50_us as f64, 2000.0);
}

#[tokio::test(start_paused = true)]
async fn questions_that_are_open_in_the_end_are_answered_or_timed_out() {
    for (stall_s, timed_out) in [(2, 150.0), (1000, 150.0)] {
        let loaded = run(
            &format!("[run]\nwarmup = \"0s\"\n{ASKING}\npatience = \"500ms\"\nrate = {{ fixed = 100 }}"),
            Behaviour {
                latency: MILLI,
                stall: Some((Duration::from_millis(8500), Duration::from_secs(stall_s))),
                ..Behaviour::default()
            },
        )
        .await;
        let asked = role(&loaded, "ask");
        assert_eq!(asked.totals.sent, asked.totals.received + asked.totals.timed_out);
        assert!(asked.totals.timed_out as f64 >= timed_out - 50.0, "{asked:?}");
        assert!(asked.latencies["round_trip"].p99_us >= 500_000);
        within_2_percent(asked.latencies["round_trip"].count as f64, 1000.0);
    }
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

#[tokio::test(start_paused = true)]
async fn relays_with_a_rate_send_on_at_most_so_many() {
    for (rate, at_least) in [(80.0, 40.0), (160.0, 80.0), (1600.0, 300.0)] {
        let loaded = run(
            &format!(
                "[topics.own]\ncount = 8\n[roles.r]\ndoes = \"relay\"\nclients = 8\nrate = {{ fixed = {rate} }}"
            ),
            Behaviour {
                latency: 20 * MILLI,
                ..Behaviour::default()
            },
        )
        .await;
        let relay = role(&loaded, "r");
        // Eight messages circulate, 20 ms per trip. A client without a message at its turn sends none.
        assert!(relay.rate <= f64::min(rate, 400.0) * 1.01, "{}", relay.rate);
        assert!(relay.rate >= at_least, "{} of {rate}", relay.rate);
        // A timer wakes a client a millisecond late at most.
        assert!((20_000..=21_100).contains(&relay.latencies["delivery"].p50_us));
        let totals = relay.totals;
        assert_eq!(
            totals.sent, totals.received,
            "what was under way in the end still came"
        );
    }
}
