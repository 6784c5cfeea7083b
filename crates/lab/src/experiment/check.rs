//! Contradictions: settings that are well-formed one by one and make no sense together.

use std::collections::BTreeSet;

use stafett_model::Durability;

pub(crate) use self::roles::is_rate;
use self::roles::{check_names, check_receiving, check_role, check_sending};
use super::figure::{Figure, FigureKind};
use super::load::{Acks, Does, ExchangeKind, Rate, TopicKind, Topics};
use super::{Design, DriverKind, Experiment, Plan, Protocol, Restart};
use super::{assembling, drawable};
use crate::results::{SERIES, WINDOW_S, metric};
use crate::systems;

/// The systems that an experiment can ask.
pub const SYSTEMS: [&str; 3] = ["stafett", "kafka", "rabbitmq"];
pub(super) const LATENCIES: [&str; 5] = ["acknowledged", "delivery", "round_trip", "poll", "lateness"];
const REPETITIONS_MAX: u32 = 1000;
const CLIENTS_MAX: u32 = 100_000;
const TOPICS_MAX: u32 = 1 << 22;
/// Of an idempotent producer of librdkafka (`max.in.flight.requests.per.connection`).
const IN_FLIGHT_IDEMPOTENT_MAX: u32 = 5;

/// A contradiction, and the setting that it concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    pub path: String,
    pub message: String,
}

pub(super) type Checked = Result<(), Contradiction>;

/// Table of contradictions of one part of an experiment: a setting, the condition that has to hold, and the
/// message if it does not. Returns the first one from the function.
macro_rules! rules {
    ($part:expr => $($setting:expr, $holds:expr, $message:literal;)*) => {
        $(if !$holds {
            return refuse($part, $setting, format!($message));
        })*
    };
}

mod roles;

pub(super) fn refuse(part: &str, setting: &str, message: String) -> Checked {
    let path = format!("{part}.{setting}");
    Err(Contradiction {
        path: path.trim_matches('.').to_owned(),
        message,
    })
}

/// Checks an experiment before values of the grid are chosen.
pub fn experiment(experiment: &Experiment) -> Checked {
    rules! { "" => "systems", !experiment.systems.is_empty(), "no system is asked"; }
    let mut seen = BTreeSet::new();
    let all = SYSTEMS.join(", ");
    for system in &experiment.systems {
        rules! { "" =>
            "systems", SYSTEMS.contains(&system.as_str()), "`{system}` is no system: expected {all}";
            "systems", seen.insert(system), "`{system}` stands there twice";
        }
        if let Some(protocol) = experiment.run.protocol {
            let name = protocol.name();
            rules! { "" =>
                "systems", speaks(system, protocol), "`{system}` does not speak {name}, which is the protocol";
            }
        }
    }
    if experiment.run.design == Design::Factorial {
        for (path, values) in &experiment.grid {
            let count = values.len();
            let plural = if count == 1 { "" } else { "s" };
            rules! { "run" =>
                "design", count == 2, "factors have a low and a high level, and `{path}` has {count} value{plural}";
            }
        }
    }
    let is_factorial = experiment.run.design == Design::Factorial;
    rules! { "run" =>
        "fraction", experiment.run.fraction.is_none() || is_factorial, "a fraction is one of a design = \"factorial\"";
    }
    for (place, figure) in experiment.figures.iter().enumerate() {
        check_figure(&format!("figures.{place}"), figure, experiment)?;
    }
    Ok(())
}

/// Checks that every figure can come of one of the plans that the grid makes.
pub(super) fn drawable(experiment: &Experiment, plans: &[Plan]) -> Checked {
    for (place, figure) in experiment.figures.iter().enumerate() {
        for name in &figure.y {
            let lacking = plans.iter().map(|plan| drawable::missing(plan, figure, name));
            // Without plans there is nothing to say.
            let lacking: Option<Vec<_>> = lacking.collect();
            if let Some(needed) = lacking.unwrap_or_default().first() {
                let title = &figure.title;
                let message = format!("figure \"{title}\": `{name}` takes {needed}, and there is none");
                return refuse(&format!("figures.{place}"), "y", message);
            }
        }
    }
    Ok(())
}

/// Returns true if a system of that name can be spoken to so.
pub fn speaks(system: &str, protocol: Protocol) -> bool {
    match system {
        "kafka" => protocol == Protocol::Kafka,
        "rabbitmq" => protocol == Protocol::Amqp,
        _ => true,
    }
}

fn check_figure(at: &str, figure: &Figure, experiment: &Experiment) -> Checked {
    let title = &figure.title;
    let is_dimension = |name: &str| {
        matches!(name, "system" | "durability")
            || experiment.grid.contains_key(name)
            || experiment.small.contains_key(&format!("grid.{name}"))
    };
    for (setting, names) in [("x", figure.x.as_slice()), ("by", &figure.by)] {
        for name in names {
            rules! { at => setting, is_dimension(name), "figure \"{title}\": `{name}` is not varied"; }
        }
    }
    let needs_x = matches!(
        figure.kind,
        FigureKind::Lines | FigureKind::Bars | FigureKind::Shares
    );
    rules! { at =>
        "kind", !needs_x || figure.x.is_some(), "figure \"{title}\": it needs an x";
        "y", !figure.y.is_empty(), "figure \"{title}\": it needs a y";
    }
    for name in &figure.y {
        let is_known = match figure.kind {
            FigureKind::Lines | FigureKind::Bars | FigureKind::Effects => metric(name).is_some(),
            FigureKind::Shares => metric(name).is_some_and(|metric| metric.unit == "µs"),
            FigureKind::Latency => LATENCIES.contains(&name.as_str()),
            FigureKind::Time => SERIES.contains(&name.as_str()),
        };
        rules! { at => "y", is_known, "figure \"{title}\": `{name}` is nothing that it can draw"; }
    }
    let window = figure.window.map_or(WINDOW_S, |window| window.0.as_secs_f64());
    let is_window = window >= WINDOW_S && window % WINDOW_S == 0.0;
    rules! { at =>
        "window", is_window && (figure.window.is_none() || figure.kind == FigureKind::Time),
            "figure \"{title}\": a window is of a figure over time, and a multiple of {WINDOW_S} s";
    }
    let can_have_effects = experiment.run.design == Design::Factorial;
    rules! { at =>
        "kind", figure.kind != FigureKind::Effects || can_have_effects,
            "figure \"{title}\": effects need design = \"factorial\"";
    }
    Ok(())
}

/// Checks the settings of all clients together, before they are taken into the roles.
pub(super) fn whole(plan: &Plan) -> Checked {
    rules! { "run" => "clients_factor", plan.run.clients_factor > 0, "clients are 1 at least"; }
    for (name, role) in &plan.roles {
        let each = role.rate_each;
        rules! { &format!("roles.{name}") =>
            "rate_each", each.is_none() || role.does.sends_first() && role.rate == Rate::Closed,
                "it stands in place of a `rate`, of a role that sends";
            "rate_each", each.is_none_or(is_rate), "rates are more than 0 and at most 1,000,000,000 per second";
        }
    }
    Ok(())
}

/// Checks the settings of a point.
pub fn plan(plan: &Plan) -> Checked {
    let run = &plan.run;
    let starts_only = plan.roles.is_empty();
    rules! { "run" =>
        "duration", !run.duration.0.is_zero(), "nothing is measured in no time";
        "repetitions", (1..=REPETITIONS_MAX).contains(&run.repetitions), "repetitions are 1 to {REPETITIONS_MAX}";
        "restart", !starts_only || run.restart == Restart::Point,
            "without roles there is nothing to do but to start: restart = \"point\"";
    }
    if let Err(error) = plan.system.durability.parse::<Durability>() {
        return refuse("system", "durability", error.to_string());
    }
    check_live(plan)?;
    for (name, topics) in &plan.topics {
        check_topics(&format!("topics.{name}"), topics, run.protocol)?;
    }
    let end = run.warmup.0 + run.duration.0;
    for (name, fault) in &plan.faults {
        rules! { &format!("faults.{name}") =>
            "at", fault.at.0 < end && !starts_only, "it comes while the load is under way";
            "every", fault.every.is_none_or(|every| every.0 > fault.away.0),
                "the system is back before the next one";
            "does", run.driver == DriverKind::Lean, "faults are for the lean drivers of this program";
        }
    }
    for (name, role) in &plan.roles {
        let at = format!("roles.{name}");
        check_role(&at, role)?;
        check_sending(&at, role)?;
        check_receiving(&at, role)?;
        check_names(&at, name, role, plan)?;
        assembling::check(&at, role, plan)?;
    }
    Ok(())
}

/// Checks settings that the clients that users take do not take, for the systems that are asked.
pub fn clients(plan: &Plan, systems: &[String]) -> Checked {
    let is_kafka = |system: &String| {
        systems::wants_client(system, plan) && systems::protocol(system, plan) == Ok(Protocol::Kafka)
    };
    for (name, role) in &plan.roles {
        let is_lean = !systems.iter().any(|system| systems::wants_client(system, plan));
        rules! { &format!("roles.{name}") =>
            "leave", is_lean || !role.leave, "unsubscribing is measured with the lean drivers alone";
            "poll", is_lean || role.poll.is_none(), "users' clients are pushed to: `poll` is for the lean drivers";
            "priority", is_lean || role.priority.is_none(), "priorities are sent by the lean drivers alone";
        }
    }
    if plan.run.driver != DriverKind::Client || !systems.iter().any(is_kafka) {
        return Ok(());
    }
    for (name, role) in &plan.roles {
        let is_idempotent = role.does != Does::Consume && role.acks() == Acks::All;
        rules! { &format!("roles.{name}") =>
            "in_flight", !is_idempotent || role.in_flight <= IN_FLIGHT_IDEMPOTENT_MAX,
                "librdkafka has at most {IN_FLIGHT_IDEMPOTENT_MAX} requests under way where no batch may be stored \
                 twice or out of order";
        }
    }
    Ok(())
}

/// Checks that settings of the whole broker are the same for all of its live topics.
fn check_live(plan: &Plan) -> Checked {
    let is_live = |(_, topics): &(&String, &Topics)| topics.kind == TopicKind::Live;
    let mut live = plan.topics.iter().filter(is_live);
    let Some((first, alike)) = live.next() else {
        return Ok(());
    };
    for (name, topics) in live {
        rules! { "topics" =>
            name, (topics.filter, topics.stored) == (alike.filter, alike.stored),
                "all sets of live topics have the same `filter` and `stored`, and `{first}` has others";
        }
    }
    Ok(())
}

fn check_topics(at: &str, topics: &Topics, protocol: Option<Protocol>) -> Checked {
    let (is_live, is_queue) = (topics.kind == TopicKind::Live, topics.kind == TopicKind::Queue);
    let types = [None, Some("classic"), Some("quorum")];
    let is_fanout = topics.exchange == Some(ExchangeKind::Fanout);
    let fits = |protocol| match topics.kind {
        TopicKind::Topic => protocol != Protocol::Live,
        TopicKind::Queue => matches!(protocol, Protocol::Amqp | Protocol::Http),
        TopicKind::Live => protocol == Protocol::Live,
    };
    let name = protocol.map_or("", Protocol::name);
    rules! { at =>
        "count", (1..=TOPICS_MAX).contains(&topics.count), "topics are 1 to {TOPICS_MAX}";
        "partitions", (1..=100_000).contains(&topics.partitions), "partitions are 1 to 100,000";
        "zipf", (0.0..=10.0).contains(&topics.zipf), "the exponent is 0 to 10";
        "stored", is_live || !topics.stored, "what is no live topic has a log anyway";
        "filter", topics.filter.is_none_or(|filter| !filter.0.is_zero()),
            "a filter remembers for more than no time";
        "partitions", !is_live || topics.partitions == 1,
            "a live topic has no partitions: count gives more topics";
        "queue_type", is_queue || topics.queue_type.is_none(), "only a queue has a type: kind = \"queue\"";
        "length_max", is_queue || topics.length_max.is_none(), "only a queue has a bound: kind = \"queue\"";
        "exchange", is_queue || topics.exchange.is_none(),
            "only queues are behind an exchange: kind = \"queue\"";
        "one_queue", !topics.one_queue || !is_live && !is_fanout,
            "one queue is bound by the names of topics, so to a direct or topic exchange";
        "queue_type", types.contains(&topics.queue_type.as_deref()), "a queue is classic or quorum";
        "partitions", !is_queue || topics.partitions == 1, "a queue has no partitions: count gives more queues";
        "kind", protocol.is_none_or(fits), "{name} has no such kind of topics, and it is the protocol";
    }
    Ok(())
}

impl Does {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Produce => "produce",
            Self::Consume => "consume",
            Self::Relay => "relay",
            Self::Request => "request",
            Self::Respond => "respond",
            Self::Filter => "filter",
            Self::Assemble => "assemble",
            Self::Peek => "peek",
            Self::Idle => "idle",
        }
    }

    pub(crate) fn sends_first(self) -> bool {
        matches!(self, Self::Produce | Self::Relay | Self::Request)
    }
}

/// Checks that a load that a point is measured with counts: a ceiling has another one.
pub fn totals(plan: &Plan) -> Checked {
    for (name, role) in &plan.roles {
        let total = role.total.unwrap_or_default();
        rules! { &format!("roles.{name}") =>
            "total", role.total.is_none() || plan.run.warmup.0.is_zero(),
                "some or all of the {total} messages would be sent in the warm-up and count for nothing: \
                 warmup = \"0s\" in [run]";
        }
    }
    Ok(())
}
