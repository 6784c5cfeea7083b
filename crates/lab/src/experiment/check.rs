//! Contradictions: settings that are well-formed one by one and make no sense together.

use std::collections::BTreeSet;

use stafett_model::Durability;

use super::drawable;
use super::figure::{Figure, FigureKind};
use super::load::{Acks, Delivery, Does, ExchangeKind, Rate, Role, Size, TopicKind, Topics};
use super::{Design, Distribution, DriverKind, Experiment, Plan, Protocol, Restart};
use crate::results::metric;
use crate::systems;

/// The systems that an experiment can ask.
pub const SYSTEMS: [&str; 3] = ["stafett", "kafka", "rabbitmq"];
pub(super) const LATENCIES: [&str; 4] = ["acknowledged", "delivery", "round_trip", "lateness"];
const SERIES: [&str; 10] = [
    "rate",
    "p99",
    "clients",
    "timed_out",
    "failed",
    "reconnects",
    "backlog",
    "broker_cpu",
    "client_cpu",
    "broker_memory",
];
const REPETITIONS_MAX: u32 = 1000;
const CLIENTS_MAX: u32 = 100_000;
const TOPICS_MAX: u32 = 1 << 22;
/// Of an idempotent producer of librdkafka (`max.in.flight.requests.per.connection`).
const IN_FLIGHT_IDEMPOTENT_MAX: u32 = 5;

/// What is wrong, and with which setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contradiction {
    pub path: String,
    pub message: String,
}

type Checked = Result<(), Contradiction>;

fn unless(holds: bool, path: &str, message: impl FnOnce() -> String) -> Checked {
    if holds {
        return Ok(());
    }
    Err(Contradiction {
        path: path.to_owned(),
        message: message(),
    })
}

/// What can be said before values of the grid are chosen.
pub fn experiment(experiment: &Experiment) -> Checked {
    unless(!experiment.systems.is_empty(), "systems", || {
        "no system is asked".to_owned()
    })?;
    let mut seen = BTreeSet::new();
    for system in &experiment.systems {
        unless(SYSTEMS.contains(&system.as_str()), "systems", || {
            format!("`{system}` is no system: expected {}", SYSTEMS.join(", "))
        })?;
        unless(seen.insert(system), "systems", || {
            format!("`{system}` stands there twice")
        })?;
        if let Some(protocol) = experiment.run.protocol {
            unless(speaks(system, protocol), "systems", || {
                format!(
                    "`{system}` does not speak {}, which is the protocol",
                    protocol.name()
                )
            })?;
        }
    }
    if experiment.run.design == Design::Factorial {
        for (path, values) in &experiment.grid {
            unless(values.len() == 2, "run.design", || {
                let count = values.len();
                let plural = if count == 1 { "" } else { "s" };
                format!("factors have a low and a high level, and `{path}` has {count} value{plural}")
            })?;
        }
    }
    for (place, figure) in experiment.figures.iter().enumerate() {
        check_figure(&format!("figures.{place}"), figure, experiment)?;
    }
    Ok(())
}

/// Whether every figure can come of one of the plans that the grid makes.
pub(super) fn drawable(experiment: &Experiment, plans: &[Plan]) -> Checked {
    for (place, figure) in experiment.figures.iter().enumerate() {
        for name in &figure.y {
            let mut lacking = plans.iter().map(|plan| drawable::missing(plan, figure, name));
            // Without plans there is nothing to say.
            let needed = lacking
                .clone()
                .all(|missing| missing.is_some())
                .then(|| lacking.next().flatten());
            if let Some(Some(needed)) = needed {
                return unless(false, &format!("figures.{place}.y"), || {
                    let title = &figure.title;
                    format!("figure \"{title}\": `{name}` takes {needed}, and there is none")
                });
            }
        }
    }
    Ok(())
}

/// Whether a system of that name can be spoken to so.
pub fn speaks(system: &str, protocol: Protocol) -> bool {
    match system {
        "kafka" => protocol == Protocol::Kafka,
        "rabbitmq" => protocol == Protocol::Amqp,
        _ => true,
    }
}

fn check_figure(path: &str, figure: &Figure, experiment: &Experiment) -> Checked {
    let at = |setting: &str| format!("{path}.{setting}");
    let about = |message: String| format!("figure \"{}\": {message}", figure.title);
    let is_dimension = |name: &str| {
        matches!(name, "system" | "durability")
            || experiment.grid.contains_key(name)
            || experiment.small.contains_key(&format!("grid.{name}"))
    };
    for (setting, names) in [("x", figure.x.as_slice()), ("by", &figure.by)] {
        for name in names {
            unless(is_dimension(name), &at(setting), || {
                about(format!("`{name}` is not varied"))
            })?;
        }
    }
    let needs_x = matches!(
        figure.kind,
        FigureKind::Lines | FigureKind::Bars | FigureKind::Shares
    );
    unless(!needs_x || figure.x.is_some(), &at("kind"), || {
        about("it needs an x".to_owned())
    })?;
    unless(!figure.y.is_empty(), &at("y"), || {
        about("it needs a y".to_owned())
    })?;
    for name in &figure.y {
        let is_known = match figure.kind {
            FigureKind::Lines | FigureKind::Bars | FigureKind::Effects => metric(name).is_some(),
            FigureKind::Shares => metric(name).is_some_and(|metric| metric.unit == "µs"),
            FigureKind::Latency => LATENCIES.contains(&name.as_str()),
            FigureKind::Time => SERIES.contains(&name.as_str()),
        };
        unless(is_known, &at("y"), || {
            about(format!("`{name}` is nothing that it can draw"))
        })?;
    }
    let is_factorial = experiment.run.design == Design::Factorial;
    unless(
        figure.kind != FigureKind::Effects || is_factorial,
        &at("kind"),
        || about("effects need design = \"factorial\"".to_owned()),
    )
}

/// What can be said of a point.
pub fn plan(plan: &Plan) -> Checked {
    let run = &plan.run;
    unless(!run.duration.0.is_zero(), "run.duration", || {
        "nothing is measured in no time".to_owned()
    })?;
    unless(
        (1..=REPETITIONS_MAX).contains(&run.repetitions),
        "run.repetitions",
        || format!("repetitions are 1 to {REPETITIONS_MAX}"),
    )?;
    unless(
        !plan.roles.is_empty() || run.restart == Restart::Point,
        "run.restart",
        || "without roles there is nothing to do but to start: restart = \"point\"".to_owned(),
    )?;
    if let Err(error) = plan.system.durability.parse::<Durability>() {
        return unless(false, "system.durability", || error.to_string());
    }
    check_live(plan)?;
    for (name, topics) in &plan.topics {
        check_topics(&format!("topics.{name}"), topics)?;
        check_protocol(&format!("topics.{name}.kind"), topics.kind, run.protocol)?;
    }
    for (name, role) in &plan.roles {
        check_role(&format!("roles.{name}"), role)?;
        check_names(&format!("roles.{name}"), name, role, plan)?;
    }
    Ok(())
}

/// What the clients that users take do not take, of the systems that are asked.
pub fn clients(plan: &Plan, systems: &[String]) -> Checked {
    let is_kafka = |system: &String| {
        systems::wants_client(system, plan) && systems::protocol(system, plan) == Ok(Protocol::Kafka)
    };
    if plan.run.driver != DriverKind::Client || !systems.iter().any(is_kafka) {
        return Ok(());
    }
    for (name, role) in &plan.roles {
        let is_idempotent = role.does != Does::Consume && role.acks() == Acks::All;
        unless(
            !is_idempotent || role.in_flight <= IN_FLIGHT_IDEMPOTENT_MAX,
            &format!("roles.{name}.in_flight"),
            || {
                format!(
                    "librdkafka has at most {IN_FLIGHT_IDEMPOTENT_MAX} requests under way where no batch may be stored \
                     twice or out of order"
                )
            },
        )?;
    }
    Ok(())
}

/// What is set for the whole broker is the same for all of its live topics.
fn check_live(plan: &Plan) -> Checked {
    let mut live = plan
        .topics
        .iter()
        .filter(|(_, topics)| topics.kind == TopicKind::Live);
    let Some((first, alike)) = live.next() else {
        return Ok(());
    };
    for (name, topics) in live {
        unless(
            (topics.filter, topics.stored) == (alike.filter, alike.stored),
            &format!("topics.{name}"),
            || {
                format!(
                    "all sets of live topics have the same `filter` and `stored`, and `{first}` has others"
                )
            },
        )?;
    }
    Ok(())
}

fn check_topics(at: &str, topics: &Topics) -> Checked {
    unless(
        (1..=TOPICS_MAX).contains(&topics.count),
        &format!("{at}.count"),
        || format!("topics are 1 to {TOPICS_MAX}"),
    )?;
    unless(
        (1..=100_000).contains(&topics.partitions),
        &format!("{at}.partitions"),
        || "partitions are 1 to 100,000".to_owned(),
    )?;
    unless(
        topics.zipf >= 0.0 && topics.zipf <= 10.0,
        &format!("{at}.zipf"),
        || "the exponent is 0 to 10".to_owned(),
    )?;
    let is_live = topics.kind == TopicKind::Live;
    unless(is_live || !topics.stored, &format!("{at}.stored"), || {
        "what is no live topic has a log anyway".to_owned()
    })?;
    unless(
        topics.filter.is_none_or(|filter| !filter.0.is_zero()),
        &format!("{at}.filter"),
        || "a filter remembers for more than no time".to_owned(),
    )?;
    unless(
        !is_live || topics.partitions == 1,
        &format!("{at}.partitions"),
        || "a live topic has no partitions: count gives more topics".to_owned(),
    )?;
    let is_queue = topics.kind == TopicKind::Queue;
    unless(
        is_queue || topics.queue_type.is_none(),
        &format!("{at}.queue_type"),
        || "only a queue has a type: kind = \"queue\"".to_owned(),
    )?;
    unless(
        is_queue || topics.length_max.is_none(),
        &format!("{at}.length_max"),
        || "only a queue has a bound: kind = \"queue\"".to_owned(),
    )?;
    unless(
        is_queue || topics.exchange.is_none(),
        &format!("{at}.exchange"),
        || "only queues are behind an exchange: kind = \"queue\"".to_owned(),
    )?;
    unless(
        !topics.one_queue || (!is_live && topics.exchange != Some(ExchangeKind::Fanout)),
        &format!("{at}.one_queue"),
        || "one queue is bound by the names of topics, so to a direct or topic exchange".to_owned(),
    )?;
    let types = [None, Some("classic"), Some("quorum")];
    unless(
        types.contains(&topics.queue_type.as_deref()),
        &format!("{at}.queue_type"),
        || "a queue is classic or quorum".to_owned(),
    )?;
    unless(
        !is_queue || topics.partitions == 1,
        &format!("{at}.partitions"),
        || "a queue has no partitions: count gives more queues".to_owned(),
    )
}

fn check_protocol(at: &str, kind: TopicKind, protocol: Option<Protocol>) -> Checked {
    let Some(protocol) = protocol else {
        return Ok(());
    };
    let fits = match kind {
        TopicKind::Topic => protocol != Protocol::Live,
        TopicKind::Queue => protocol == Protocol::Amqp,
        TopicKind::Live => protocol == Protocol::Live,
    };
    unless(fits, at, || {
        format!(
            "{} has no such kind of topics, and it is the protocol",
            protocol.name()
        )
    })
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
            Self::Idle => "idle",
        }
    }

    pub(crate) fn sends_first(self) -> bool {
        matches!(self, Self::Produce | Self::Relay | Self::Request)
    }
}

fn check_role(at: &str, role: &Role) -> Checked {
    let path = |name: &str| format!("{at}.{name}");
    let does = role.does.name();
    unless(
        (1..=CLIENTS_MAX).contains(&role.clients),
        &path("clients"),
        || format!("clients are 1 to {CLIENTS_MAX}"),
    )?;
    unless(
        role.does.sends_first() || role.rate == Rate::Closed,
        &path("rate"),
        || format!("a role that does `{does}` has no rate of its own"),
    )?;
    unless(
        role.rate == Rate::Closed || role.window.is_none(),
        &path("window"),
        || "`window` is for a closed loop, and `rate` makes it an open one".to_owned(),
    )?;
    unless(role.window != Some(0), &path("window"), || {
        "nothing may be sent with a window of 0".to_owned()
    })?;
    unless(
        (0.0..=1.0).contains(&role.duplicates),
        &path("duplicates"),
        || "`duplicates` is a share, 0 to 1".to_owned(),
    )?;
    unless((1..=1000).contains(&role.in_flight), &path("in_flight"), || {
        "1 to 1000 requests are under way".to_owned()
    })?;
    unless((64..=64 << 20).contains(&role.batch.0), &path("batch"), || {
        "batches are 64 B to 64 MiB".to_owned()
    })?;
    unless(
        role.prefetch.is_none_or(|prefetch| prefetch <= u16::MAX.into()),
        &path("prefetch"),
        || "a prefetch is at most 65,535".to_owned(),
    )?;
    unless(
        role.does == Does::Consume || role.work.is_none(),
        &path("work"),
        || format!("a role that does `{does}` has no other work"),
    )?;
    unless(
        role.work.as_ref().is_none_or(|work| work.bulk > 0),
        &path("work"),
        || "at least one message is handed over: bulk = 1".to_owned(),
    )?;
    unless(
        role.does == Does::Consume || !role.fan_out,
        &path("fan_out"),
        || format!("a role that does `{does}` does not share what it receives"),
    )?;
    unless(
        role.does == Does::Produce || role.total.is_none(),
        &path("total"),
        || format!("a role that does `{does}` never ends: `total` is for one that does `produce`"),
    )?;
    check_acks(at, role)?;
    check_transaction(at, role)?;
    check_idle_settings(at, role)?;
    check_shape(at, role)?;
    check_rate(&path("rate"), &role.rate)?;
    check_size(&path("size"), &role.size)
}

fn check_acks(at: &str, role: &Role) -> Checked {
    let is_fitting = match role.acks() {
        Acks::None => role.delivery == Delivery::AtMostOnce,
        Acks::Leader => role.delivery == Delivery::AtLeastOnce,
        Acks::All => role.delivery != Delivery::AtMostOnce,
    };
    unless(
        role.acks.is_none() || (is_fitting && role.does != Does::Consume),
        &format!("{at}.acks"),
        || {
            "of a role that sends, acks = \"0\" goes with delivery = \"at-most-once\", \"1\" with \"at-least-once\", and \"all\" \
             with \"at-least-once\" and \"exactly-once\""
                .to_owned()
        },
    )
}

fn check_transaction(at: &str, role: &Role) -> Checked {
    let is_transaction = role.delivery == Delivery::ExactlyOnce
        && role.does == Does::Produce
        && role.transaction.is_none_or(|span| !span.0.is_zero());
    unless(
        role.transaction.is_none() || is_transaction,
        &format!("{at}.transaction"),
        || {
            "transactions, longer than no time, are of a role that does `produce` with delivery = \"exactly-once\"".to_owned()
        },
    )
}

/// What would be taken and do nothing.
fn check_idle_settings(at: &str, role: &Role) -> Checked {
    let path = |name: &str| format!("{at}.{name}");
    let does = role.does.name();
    unless(
        role.does == Does::Produce || role.duplicates <= 0.0,
        &path("duplicates"),
        || {
            format!(
                "a role that does `{does}` sends nothing twice: `duplicates` is for one that does `produce`"
            )
        },
    )?;
    unless(
        role.does == Does::Consume || role.kill.is_none(),
        &path("kill"),
        || format!("a role that does `{does}` is not cut off: `kill` is for one that does `consume`"),
    )
}

/// What can be said of a point that is measured: a load that a ceiling is measured with knows what it does.
pub fn totals(plan: &Plan) -> Checked {
    let mut roles = plan.roles.iter();
    let bounded = roles.find(|(_, role)| role.total.is_some() && !plan.run.warmup.0.is_zero());
    bounded.map_or(Ok(()), |(name, role)| {
        let total = role.total.unwrap_or_default();
        unless(false, &format!("roles.{name}.total"), || {
            format!(
                "some or all of the {total} messages would be sent in the warm-up and count for nothing: warmup = \"0s\" in [run]"
            )
        })
    })
}

/// How a role's clients are alike.
fn check_shape(at: &str, role: &Role) -> Checked {
    let path = |name: &str| format!("{at}.{name}");
    let does = role.does.name();
    let sends_alike = role.copies == 1
        || role.does == Does::Produce
            && role.total.is_none()
            && role.copies > 0
            && role.clients.is_multiple_of(role.copies)
            && !matches!(role.rate, Rate::Closed | Rate::Adaptive(_));
    unless(sends_alike, &path("copies"), || {
        "copies are for a role that does `produce` at a rate of its own, without a total; its clients are a multiple of them"
            .to_owned()
    })?;
    let is_ahead = role.ahead.is_none() || role.does == Does::Produce && role.rate == Rate::Closed;
    unless(is_ahead && role.ahead != Some(0), &path("ahead"), || {
        "`ahead` is for a role that does `produce` in a closed loop, and at least 1".to_owned()
    })?;
    let consumes = role.does == Does::Consume;
    unless(
        consumes || role.users == 1 && role.follows.is_none(),
        &path(if role.users == 1 { "follows" } else { "users" }),
        || format!("a role that does `{does}` does not subscribe"),
    )?;
    unless((1..=1000).contains(&role.users), &path("users"), || {
        "1 to 1000 subscribers share a connection".to_owned()
    })?;
    unless(role.users == 1 || role.follows.is_some(), &path("users"), || {
        "what each of several subscribers follows has to be said: `follows`".to_owned()
    })?;
    unless(role.follows.is_none() || !role.fan_out, &path("fan_out"), || {
        "who follows some topics does not get everything".to_owned()
    })
}

/// Every topic has as many followers as any other, so that what is missing can be counted.
fn check_following(at: &str, role: &Role, topics: &Topics) -> Checked {
    let live = topics.kind == TopicKind::Live;
    unless(live || role.follows.is_none(), &format!("{at}.follows"), || {
        "only live topics are followed one by one: kind = \"live\"".to_owned()
    })?;
    let Some(follows) = role.follows else {
        return Ok(());
    };
    let followers = u64::from(role.clients) * u64::from(role.users) * u64::from(follows);
    let each = followers / u64::from(topics.count.max(1));
    unless(
        follows >= 1
            && follows <= topics.count
            && followers.is_multiple_of(u64::from(topics.count))
            && u16::try_from(each).is_ok(),
        &format!("{at}.follows"),
        || {
            format!(
                "{} subscribers that follow {follows} of {} topics each do not make the same whole number (at most 65,535) \
                 of followers for every topic",
                u64::from(role.clients) * u64::from(role.users),
                topics.count
            )
        },
    )
}

/// Whether so many messages per second can be sent.
pub(crate) fn is_rate(rate: f64) -> bool {
    rate > 0.0 && rate <= 1e9
}

fn check_rate(at: &str, rate: &Rate) -> Checked {
    let fits = match rate {
        Rate::Closed => true,
        Rate::Fixed(rate) | Rate::Poisson(rate) => is_rate(*rate),
        Rate::Steps(steps) => {
            is_rate(steps.first) && is_rate(steps.add) && is_rate(steps.up_to) && !steps.every.0.is_zero()
        }
        Rate::Adaptive(adaptive) => {
            is_rate(adaptive.first)
                && !adaptive.p99.0.is_zero()
                && !adaptive.every.0.is_zero()
                && adaptive.raise > 1.0
                && adaptive.raise <= 10.0
        }
    };
    unless(fits, at, || {
        "rates are more than 0 and at most 1,000,000,000 per second, times more than 0, `raise` 1 to 10"
            .to_owned()
    })
}

fn check_size(at: &str, size: &Size) -> Checked {
    const BYTES_MAX: u64 = 64 << 20;
    let fits = match size {
        Size::Fixed(bytes) => bytes.0 <= BYTES_MAX,
        Size::Distributed(Distribution::Uniform([low, high])) => low <= high && high.0 <= BYTES_MAX,
        Size::Distributed(Distribution::Lognormal([median, sigma])) => {
            *median >= 1.0 && *median <= BYTES_MAX as f64 && *sigma >= 0.0 && *sigma <= 10.0
        }
    };
    unless(fits, at, || {
        "messages have at most 64 MiB; of a range the first is the smaller; sigma is 0 to 10".to_owned()
    })
}

/// What a role names has to be there.
fn check_names(at: &str, name: &str, role: &Role, plan: &Plan) -> Checked {
    for (setting, set) in [("topics", &role.topics), ("to", &role.to)] {
        let path = format!("{at}.{setting}");
        match set {
            Some(set) => unless(plan.topics.contains_key(set), &path, || {
                format!("there is no [topics.{set}]")
            })?,
            None => unless(setting == "to" || plan.topics.len() == 1, at, || {
                format!("there are several sets of topics: which one does `{name}` use?")
            })?,
        }
    }
    let set = match &role.topics {
        Some(set) => plan.topics.get(set),
        None => plan.topics.values().next(),
    };
    if let Some(topics) = set {
        check_following(at, role, topics)?;
    }
    // Whoever waits must not wait for itself.
    let mut before = role.after.as_deref();
    let mut steps = 0;
    while let Some(other) = before {
        let path = format!("{at}.after");
        let found = plan.roles.get(other);
        unless(found.is_some(), &path, || format!("there is no role `{other}`"))?;
        steps += 1;
        unless(other != name && steps <= plan.roles.len(), &path, || {
            format!("`{name}` would wait for itself")
        })?;
        unless(found.is_some_and(|found| found.total.is_some()), &path, || {
            format!("`{other}` never ends: it needs a total")
        })?;
        before = found.and_then(|found| found.after.as_deref());
    }
    Ok(())
}
