//! Verdicts: how a point ended, and whether the client was measured rather than the system.

use super::metrics;
use crate::drivers::DriverError;
use crate::experiment::{Delivery, Does, Fault, Plan, Rate, Role, TopicKind, Topics};
use crate::results::{Ceiling, Outcome, OutcomeKind, Point, ProcessKind, RoleResult};
use crate::workload::{Loaded, derived_numbers};

/// A rate this close to the client's ceiling is the client's own.
const NEAR_CEILING: f64 = 0.9;
/// Less of the asked rate than this is worth a word.
const NEARLY_ALL: f64 = 0.98;
/// Messages that the client itself sends this late spoil a latency: time that it waited for the system does
/// not count.
const LATE_US: u64 = 5_000;
const FORGOTTEN: &str =
    "acknowledged messages did not outlive the fault, which the level `memory` does not promise";
const DROPPED: &str = "messages were dropped: live topics without a log keep nothing";

/// Facts for a verdict.
pub(super) struct VerdictInput<'a> {
    pub(super) plan: &'a Plan,
    pub(super) loaded: &'a Loaded,
    /// End of the system's process.
    pub(super) died: Option<String>,
    /// The level of durability.
    pub(super) level: &'a str,
}

impl VerdictInput<'_> {
    /// Returns the reason why acknowledged messages need not come out.
    fn excuse(&self) -> Option<&'static str> {
        let Plan {
            faults,
            topics,
            roles,
            ..
        } = self.plan;
        let drops = |topics: &Topics| topics.kind == TopicKind::Live && !topics.stored;
        let forgets = self.level == "memory" && faults.values().any(Fault::ends_process);
        let searches = roles.values().any(|role| role.rate.adaptive().is_some());
        let dropped = (searches && topics.values().all(drops)).then_some(DROPPED);
        forgets.then_some(FORGOTTEN).or(dropped)
    }
}

/// Returns the outcome of a point that was not measured.
pub(super) fn of_error(error: DriverError) -> Outcome {
    match error {
        DriverError::Failed(reason) => failed(reason),
        DriverError::Refused(reason) => Outcome::because(OutcomeKind::Refused, reason),
        DriverError::Missing(reason) => Outcome::because(OutcomeKind::Skipped, reason),
    }
}

fn failed(reason: impl Into<String>) -> Outcome {
    Outcome::because(OutcomeKind::Failed, reason)
}

pub(super) fn death(status: &str) -> String {
    format!("the system ended under load: {status}")
}

pub(super) fn of(seen: &VerdictInput<'_>) -> Outcome {
    if let Some(status) = &seen.died {
        return failed(death(status));
    }
    let total = |of: fn(&RoleResult) -> u64| seen.loaded.roles.iter().map(of).sum::<u64>();
    let sends = seen.plan.roles.values().any(|role| role.does.sends_first());
    if sends && total(|role| role.totals.acknowledged + role.totals.received) == 0 {
        let reason = seen.loaded.error.clone();
        return failed(reason.unwrap_or_else(|| "the system did not answer".to_owned()));
    }
    let idle = wanted_idle(seen.plan);
    let refused = total(|role| u64::from(role.does == "idle") * role.totals.failed);
    if idle > 0 && refused > 0 {
        let reason = seen.loaded.error.clone().unwrap_or_default();
        return failed(format!("{refused} of {idle} connections were not made: {reason}"));
    }
    let lost = total(|role| role.totals.lost);
    let mut producers = seen.plan.roles.values().filter(|role| role.does == Does::Produce);
    let may_lose = producers.all(|role| role.delivery == Delivery::AtMostOnce);
    if lost > 0 && !may_lose && seen.excuse().is_none() {
        return Outcome::because(
            OutcomeKind::Lost,
            format!("{lost} acknowledged messages did not come out"),
        );
    }
    let duplicated = total(|role| role.totals.duplicated);
    if duplicated > 0 && is_exactly_once(seen.plan) {
        return failed(format!(
            "exactly once was asked for, and {duplicated} messages came out twice"
        ));
    }
    Outcome::done()
}

/// Returns true if nothing may come out twice. That excludes consumers that are cut off, which read again
/// from their last commit, and messages that are sent twice on purpose.
fn is_exactly_once(plan: &Plan) -> bool {
    let mut senders = plan
        .roles
        .values()
        .filter(|role| role.does == Does::Produce)
        .peekable();
    let once =
        |role: &Role| role.delivery == Delivery::ExactlyOnce && role.duplicates <= 0.0 && role.copies == 1;
    senders.peek().is_some() && senders.all(once) && plan.roles.values().all(|role| role.kill.is_none())
}

fn wanted_idle(plan: &Plan) -> u64 {
    let idle = plan.roles.values().filter(|role| role.does == Does::Idle);
    idle.map(|role| u64::from(role.clients)).sum()
}

pub(super) fn remarks(seen: &VerdictInput<'_>) -> Vec<String> {
    let mut remarks = seen.loaded.remarks.clone();
    let (idle, wanted) = (metrics::idle(seen.loaded), wanted_idle(seen.plan));
    if u64::from(idle) < wanted {
        remarks.push(format!("{idle} of {wanted} connections were there in the end"));
    }
    let failed: u64 = seen.loaded.roles.iter().map(|role| role.totals.failed).sum();
    if failed > 0 {
        let reason = seen.loaded.error.clone().unwrap_or_default();
        remarks.push(format!(
            "{failed} messages were refused or not answered; the first: {reason}"
        ));
    }
    let lost: u64 = seen.loaded.roles.iter().map(|role| role.totals.lost).sum();
    if lost > 0
        && let Some(excuse) = seen.excuse()
    {
        remarks.push(format!("{lost} {excuse}"));
    }
    remarks.extend(short_of_the_rate(seen.plan, seen.loaded));
    remarks
}

/// Of roles with a rate of their own: that it did not come through in the time that counts.
fn short_of_the_rate(plan: &Plan, loaded: &Loaded) -> Vec<String> {
    let (from, to) = (loaded.warmup_s, loaded.warmup_s + loaded.measured_s);
    let mut short = Vec::new();
    for result in &loaded.roles {
        let Some(role) = plan.roles.get(&result.name) else {
            continue;
        };
        let (done, came) = match role.does {
            Does::Produce => ("acknowledged", result.counts.acknowledged),
            Does::Request => ("answered in time", result.counts.received),
            // A relay's is a bound.
            Does::Relay
            | Does::Consume
            | Does::Respond
            | Does::Filter
            | Does::Assemble
            | Does::Peek
            | Does::Idle => {
                continue;
            }
        };
        let Some(asked) = derived_numbers::asked(role, from, to) else {
            continue;
        };
        // A random number may be less by chance.
        let chance = match role.rate {
            Rate::Poisson(_) => 3.0 * asked.sqrt(),
            Rate::Closed | Rate::Fixed(_) | Rate::Steps(_) | Rate::Adaptive(_) => 0.0,
        };
        let came = came as f64 / (1.0 + role.duplicates);
        if came < NEARLY_ALL * asked && came < asked - chance {
            short.push(format!(
                "`{}` was to send {:.0} messages/s, and {:.0} were {done} in the time that counts ({:.1} %)",
                result.name,
                asked / loaded.measured_s.max(1e-9),
                came / loaded.measured_s.max(1e-9),
                came / asked * 100.0
            ));
        }
    }
    short
}

/// Returns the reason why the client, rather than the system, may have been measured.
pub(super) fn limited(plan: &Plan, loaded: &Loaded, ceilings: &[Ceiling], point: &Point) -> Option<String> {
    let ceiling = ceilings.iter().find(|ceiling| {
        let mut concerned = ceiling.parameters.iter();
        ceiling.driver == point.driver.name
            && concerned.all(|(path, value)| point.parameters.get(path) == Some(value))
    });
    let rate = |does: &str| -> f64 {
        loaded
            .roles
            .iter()
            .filter(|role| role.does == does)
            .map(|role| role.rate)
            .sum()
    };
    if let Some(ceiling) = ceiling {
        for (does, most) in [
            ("produce", ceiling.produce_rate),
            ("consume", ceiling.consume_rate),
        ] {
            if let Some(most) = most.filter(|most| *most > 0.0 && rate(does) > NEAR_CEILING * most) {
                return Some(format!(
                    "the client itself reaches {most:.0} messages/s against a stub ({does})"
                ));
            }
        }
    }
    let is_open = plan.roles.values().any(|role| !matches!(role.rate, Rate::Closed));
    let late = loaded
        .roles
        .iter()
        .filter_map(|role| role.latencies.get("lateness"))
        .map(|late| late.p99_us)
        .max();
    if let Some(late) = late.filter(|late| is_open && *late > LATE_US) {
        let cpu: f64 = loaded
            .processes
            .iter()
            .filter(|process| process.kind == ProcessKind::Client)
            .flat_map(|process| &process.samples)
            .map(|sample| sample.cpu_user_s + sample.cpu_system_s)
            .sum();
        let seconds = loaded.warmup_s + loaded.measured_s;
        return Some(format!(
            "the client sent its messages late: p99 {:.1} ms after they were due and it could; it used {:.2} cores",
            late as f64 / 1e3,
            cpu / seconds.max(1e-9)
        ));
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::experiment::Source;
    use crate::results::{Counts, RoleResult};

    fn plan(rate: &str) -> Plan {
        let source = Source::new(
            "x",
            format!(
                "question = \"?\"\nsystems = [\"stafett\"]\n[run]\nwarmup = \"0s\"\n[roles.p]\ndoes = \"produce\"\n{rate}"
            ),
        );
        source.plan(1.0, &BTreeMap::new()).unwrap()
    }

    fn loaded(acknowledged: u64) -> Loaded {
        let counts = Counts {
            acknowledged,
            ..Counts::default()
        };
        Loaded {
            connected: std::time::Duration::ZERO,
            roles: vec![RoleResult {
                name: "p".to_owned(),
                does: "produce".to_owned(),
                clients: 1,
                counts,
                totals: counts,
                rate: acknowledged as f64 / 10.0,
                bytes_rate: 0.0,
                latencies: BTreeMap::new(),
                samples: Vec::new(),
                windows: Vec::new(),
            }],
            processes: Vec::new(),
            warmup_s: 2.0,
            measured_s: 10.0,
            drain_s: None,
            unsubscribe_s: None,
            silences: Vec::new(),
            sustainable_rate: None,
            error: None,
            remarks: Vec::new(),
            books: Vec::new(),
            log: Vec::new(),
            client_cores: 1,
        }
    }

    #[test]
    fn lost_messages_are_no_failure_of_a_search_over_live_topics_without_a_log() {
        let adaptive = "rate = { adaptive = { first = 1000, p99 = \"50ms\", every = \"5s\" } }";
        let (live, stored) = (
            "[topics.t]\nkind = \"live\"",
            "[topics.t]\nkind = \"live\"\nstored = true",
        );
        let fixed = "rate = { fixed = 100 }";
        for (rate, topics, kind) in [
            (adaptive, live, OutcomeKind::Done),
            (adaptive, stored, OutcomeKind::Lost),
            (adaptive, "[topics.t]", OutcomeKind::Lost),
            (fixed, live, OutcomeKind::Lost),
        ] {
            let (plan, mut loaded) = (plan(&format!("{rate}\n{topics}")), loaded(1000));
            loaded.roles[0].totals.lost = 7;
            let seen = VerdictInput {
                plan: &plan,
                loaded: &loaded,
                died: None,
                level: "os",
            };
            assert_eq!(of(&seen).kind, kind, "{rate}, {topics}");
            let is_said = remarks(&seen)
                .iter()
                .any(|remark| remark.starts_with("7 messages were dropped"));
            assert_eq!(is_said, kind == OutcomeKind::Done, "{rate}, {topics}");
        }
    }

    #[test]
    fn a_rate_that_did_not_come_through_is_said() {
        for (rate, acknowledged, says) in [
            ("rate = { fixed = 100 }", 1000, None),
            ("rate = { fixed = 100 }", 985, None),
            (
                "rate = { fixed = 100 }",
                500,
                Some("was to send 100 messages/s, and 50 were acknowledged in the time that counts (50.0 %)"),
            ),
            ("rate = { poisson = 100 }", 930, None),
            ("rate = { poisson = 100 }", 800, Some("(80.0 %)")),
            // 20 a second from the second to the third second, and so on up to 50.
            (
                "rate = { steps = { first = 0.001, add = 10, every = \"1s\", up_to = 50 } }",
                440,
                None,
            ),
            (
                "rate = { steps = { first = 0.001, add = 10, every = \"1s\", up_to = 50 } }",
                400,
                Some("was to send 44 messages/s"),
            ),
            (
                "clients = 10\nrate = { fixed = 100 }\narrive = { first = 5, add = 1, every = \"1s\" }",
                940,
                None,
            ),
            ("rate = { fixed = 100 }\ntotal = 100", 100, None),
            ("rate = \"closed\"", 1, None),
        ] {
            let said = short_of_the_rate(&plan(rate), &loaded(acknowledged));
            match says {
                None => assert_eq!(said, [""; 0], "{rate}"),
                Some(says) => assert!(said.first().is_some_and(|said| said.contains(says)), "{said:?}"),
            }
        }
    }
}
