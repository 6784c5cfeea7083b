//! Figures that the roles of a plan can give. A figure that none of them gives would be drawn empty, which
//! its reader would learn at the end of a run.

use super::check::LATENCIES;
use super::{Does, Figure, FigureKind, Plan};

/// Returns the roles that a plan lacks for a name that a figure draws; `None` if it has them.
pub(super) fn missing(plan: &Plan, figure: &Figure, name: &str) -> Option<&'static str> {
    let (holds, needed) = match figure.kind {
        FigureKind::Lines | FigureKind::Bars | FigureKind::Effects | FigureKind::Shares => metric(plan, name),
        FigureKind::Latency => latency(plan, name),
        FigureKind::Time => series(plan, name),
    };
    (!holds).then_some(needed)
}

fn does(plan: &Plan, any_of: &[Does]) -> bool {
    plan.roles.values().any(|role| any_of.contains(&role.does))
}

fn sends(plan: &Plan) -> bool {
    plan.roles.values().any(|role| role.does.sends_first())
}

const PRODUCER: &str = "a role that does `produce`";
const CONSUMER: &str = "a role that does `consume`";
const RECEIVER: &str = "a role that does `consume` or `relay`";
const REQUESTER: &str = "a role that does `request`";
const IN_TIME: &str = "a role that does `request` or `relay`";
const POLLER: &str = "a role with `poll`, or one that does `peek`";
const SENDER: &str = "a role that sends";
const ROLE: &str = "a role";

fn metric(plan: &Plan, name: &str) -> (bool, &'static str) {
    let has = |any_of: &[Does]| does(plan, any_of);
    let mut roles = plan.roles.values();
    match name {
        "produce_rate" | "produce_bytes_rate" => (has(&[Does::Produce]), PRODUCER),
        "consume_rate" | "consume_bytes_rate" | "arrival_rate" | "middle_rate" => {
            (has(&[Does::Consume, Does::Relay]), RECEIVER)
        }
        "goodput" | "timed_out" => (has(&[Does::Request, Does::Relay]), IN_TIME),
        "lost" | "duplicated" => (has(&[Does::Consume]), CONSUMER),
        "sustainable_rate" => (
            roles.any(|role| role.rate.adaptive().is_some()),
            "a role with an adaptive rate",
        ),
        "drain_s" => (
            roles.any(|role| role.does == Does::Consume && role.after.is_some()),
            "a role that does `consume` and begins `after` another one",
        ),
        "tasks_moved" | "task_gap_s" | "rebalance_s" => {
            (has(&[Does::Assemble]), "a role that does `assemble`")
        }
        "within_500ms_share" | "within_2s_share" => (sends(plan), SENDER),
        "unsubscribe_s" => (roles.any(|role| role.leave), "a role with `leave`"),
        "recovered_s" | "unavailable_s" => (
            !plan.faults.is_empty() && sends(plan),
            "faults, and a role that sends",
        ),
        "filtered" => (
            plan.topics.values().any(|topics| topics.filter.is_some()),
            "topics with a `filter`",
        ),
        "broker_cpu_per_million" | "client_cpu_per_million" | "broker_disk_written_per_message" => {
            (sends(plan), SENDER)
        }
        "memory_per_connection_kib" => (
            has(&[Does::Idle]) || !plan.roles.is_empty() && !sends(plan),
            "a role that is `idle`, or nobody who sends",
        ),
        // Systems start without anything to do, too.
        "cold_start_s" | "broker_memory_mib" => (true, ROLE),
        name => LATENCIES
            .into_iter()
            .find(|latency| name.starts_with(latency) && name.ends_with("_us"))
            .map_or((!plan.roles.is_empty(), ROLE), |name| latency(plan, name)),
    }
}

fn latency(plan: &Plan, name: &str) -> (bool, &'static str) {
    match name {
        "acknowledged" => (does(plan, &[Does::Produce]), PRODUCER),
        "delivery" => (does(plan, &[Does::Consume, Does::Relay, Does::Respond]), RECEIVER),
        "poll" => (
            plan.roles
                .values()
                .any(|role| role.poll.is_some() || role.does == Does::Peek),
            POLLER,
        ),
        "round_trip" => (does(plan, &[Does::Request]), REQUESTER),
        _ => (sends(plan), SENDER),
    }
}

fn series(plan: &Plan, name: &str) -> (bool, &'static str) {
    match name {
        "rate" | "band" | "p2_5" | "p50" | "mean" | "p97_5" | "p99" | "max" => {
            (sends(plan) || does(plan, &[Does::Consume]), SENDER)
        }
        "timed_out" => (does(plan, &[Does::Request, Does::Relay]), IN_TIME),
        "backlog" => (sends(plan) && does(plan, &[Does::Consume]), CONSUMER),
        _ => (!plan.roles.is_empty(), ROLE),
    }
}
