//! RabbitMQ's `PerfTest` (its documentation, "Using PerfTest"): all producers and consumers in one Java machine, a thread
//! for each channel.
//!
//! ```text
//! id: lab, time 2.000 s, sent: 20311 msg/s, confirmed: 20295 msg/s, nacked: 0 msg/s, received: 20290 msg/s,
//!   min/median/75th/95th/99th consumer latency: 210/890/1204/3020/5871 µs, confirm latency: 190/700/1100/2700/5100 µs
//! ```
//!
//! Such a line (it is one) stands for the time since the one before, and there is none for a second without any message. Its
//! time begins when all connections are there. Queues are there already, made as for every other driver; so nothing but
//! the persistence of messages has to be said of durability.

use super::launch::{Ends, Heard, Launch, Reader, Target};
use super::parts::{Parts, Times, Zero};
use super::told::{Interval, Quantiles};
use crate::experiment::{Codec, Delivery, ExchangeKind, Plan, Role, TopicKind};

/// As its makers write it.
pub(super) const NAME: &str = "PerfTest";
/// What bodies begin with: a number and the time.
const SIZE_MIN: u64 = 12;
/// Every queue of a client takes a channel, and a thread.
const CHANNELS_MAX: u64 = 64;
const CLIENTS_MAX: u32 = 500;
/// Behind what counts, so that the last second that does is told.
const SPARE_S: u32 = 1;
const CONFIRMED_WITHIN_S: u32 = 30;
/// Messages that a consumer holds, as with the lean driver.
const PREFETCH: u32 = 1000;
const PERCENTILES: &str = "min/median/75th/95th/99th ";

/// The program for a plan.
///
/// # Errors
/// Names what it cannot be told.
pub(super) fn launch(plan: &Plan, target: &Target<'_>) -> Result<Launch, String> {
    let parts = Parts::of(plan, NAME)?;
    let (name, senders) = parts.senders;
    let receivers = parts.receivers.map(|(_, role)| role);
    check(&parts, name)?;
    let queues = Queues::of(&parts, target)?;
    let times = times(plan);
    let mut args = Args::default();
    args.put("--uri", format!("amqp://guest:guest@{}", target.address));
    args.put("--id", "lab");
    // What is there is used as it is: nothing is declared or bound.
    args.flag("--predeclared");
    args.flag("--skip-binding-queues");
    queues.put(&mut args);
    args.put("--producers", senders.clients);
    args.put("--producer-channel-count", queues.of_sender);
    args.put("--consumers", receivers.map_or(0, |role| role.clients));
    args.put("--consumer-channel-count", queues.of_receiver);
    args.put("--size", parts.size_bytes);
    args.put("--interval", 1);
    args.put("--time", times.all_s().saturating_add(SPARE_S));
    if let Some(rate) = parts.rate {
        let threads = f64::from(senders.clients) * queues.of_sender as f64;
        args.put("--rate", rate / threads);
    }
    if senders.delivery == Delivery::AtLeastOnce {
        let under_way = window(senders, parts.size_bytes).div_ceil(queues.of_sender);
        args.put("--confirm", under_way);
        args.put("--confirm-timeout", CONFIRMED_WITHIN_S);
    }
    if let Some(role) = receivers {
        let prefetch = role.prefetch.unwrap_or(PREFETCH);
        if role.delivery == Delivery::AtMostOnce {
            args.flag("--autoack");
        } else if prefetch > 0 {
            args.put("--qos", prefetch);
        }
    }
    if target.is_persistent() {
        args.put("--flag", "persistent");
    }
    // A connection that is lost ends it, instead of being made again behind everybody's back.
    args.flag("--disable-connection-recovery");
    args.put("--metrics-format", "default");
    Ok(Launch {
        name: "perf-test",
        command: "perf",
        args: args.0,
        reader: Reader::PerfTest(Lines::default()),
        ends: Ends::InTime,
    })
}

/// Its time begins when everybody is connected; the Java machine is as good as new then.
pub(super) fn times(plan: &Plan) -> Times {
    Times::of(plan, Zero::Told)
}

/// What `PerfTest` lacks beside what all tools lack.
fn check(parts: &Parts<'_>, name: &str) -> Result<(), String> {
    let (_, senders) = parts.senders;
    if senders.compression != Codec::None {
        return Err("AMQP has no compression".to_owned());
    }
    if let Some(lack) = senders.lacks_acks("AMQP") {
        return Err(lack);
    }
    if parts.size_bytes < SIZE_MIN {
        return Err(format!(
            "{NAME} has no messages below {SIZE_MIN} bytes (`{name}`)"
        ));
    }
    let mut roles = std::iter::once(parts.senders).chain(parts.receivers);
    match roles.find(|(_, role)| role.clients > CLIENTS_MAX) {
        Some((name, role)) => Err(format!(
            "{NAME} has a thread for each client, and `{name}` has {}: more than {CLIENTS_MAX} are not tried",
            role.clients
        )),
        None => Ok(()),
    }
}

/// Messages of a client that may be without a confirm: as many as with the lean driver.
fn window(role: &Role, size_bytes: u64) -> u64 {
    let bytes = u64::from(role.in_flight) * role.batch.0;
    let by_default = (bytes / size_bytes.max(1)).clamp(1, i32::MAX.unsigned_abs().into());
    role.window.map_or(by_default, u64::from)
}

/// Which queues there are, and how clients share them.
struct Queues {
    exchange: Option<String>,
    named: Named,
    /// Queues that each client sends to and receives from.
    of_sender: u64,
    of_receiver: u64,
}

enum Named {
    /// Nobody receives.
    None,
    One(String),
    /// Such as `lab-1-main-%d`, and the last number; the first is 0.
    Numbered(String, u64),
}

impl Queues {
    /// Names are those of [`crate::drivers::amqp::layout`].
    fn of(parts: &Parts<'_>, target: &Target<'_>) -> Result<Self, String> {
        let first = target.names.first().map_or("", String::as_str);
        let receivers = parts.receivers.map(|(_, role)| role);
        let fans_out = receivers.is_some_and(|role| role.fan_out);
        if parts
            .topics
            .exchange
            .is_some_and(|kind| kind != ExchangeKind::Fanout)
        {
            return Err(format!(
                "{NAME} is told of fan-out exchanges alone here, and of no other `exchange`"
            ));
        }
        let (count, partitions) = (u64::from(parts.topics.count), u64::from(parts.topics.partitions));
        if fans_out || parts.topics.exchange.is_some() {
            return Self::behind_exchange(parts, first);
        }
        if count > 1 && partitions > 1 {
            return Err(format!(
                "{NAME} numbers queues once: `count` or `partitions` is 1"
            ));
        }
        let queues = count * partitions;
        let named = if queues == 1 {
            Named::One(first.to_owned())
        } else if parts.topics.kind == TopicKind::Topic && partitions > 1 {
            Named::Numbered(format!("{first}-%d"), queues - 1)
        } else {
            Named::Numbered(
                format!("{}%d", first.strip_suffix('0').unwrap_or(first)),
                queues - 1,
            )
        };
        if queues > CHANNELS_MAX {
            return Err(format!(
                "{NAME} takes a channel for each queue, and there are {queues}: more than {CHANNELS_MAX}"
            ));
        }
        let clients = receivers.map_or(1, |role| u64::from(role.clients));
        if queues > clients && !queues.is_multiple_of(clients) {
            return Err(format!(
                "{NAME} cannot share {queues} queues out evenly to {clients} consumers"
            ));
        }
        Ok(Self {
            exchange: None,
            named,
            of_sender: queues,
            of_receiver: (queues / clients).max(1),
        })
    }

    /// One queue for each audience; every client has one.
    fn behind_exchange(parts: &Parts<'_>, exchange: &str) -> Result<Self, String> {
        if parts.topics.count > 1 {
            let count = parts.topics.count;
            return Err(format!(
                "{NAME} sends to one exchange, and there are {count} (`count`)"
            ));
        }
        let named = match parts.receivers {
            None => Named::None,
            Some((audience, role)) if role.fan_out => {
                Named::Numbered(format!("{exchange}-{audience}-%d"), u64::from(role.clients) - 1)
            }
            Some((audience, _)) => Named::One(format!("{exchange}-{audience}")),
        };
        Ok(Self {
            exchange: Some(exchange.to_owned()),
            named,
            of_sender: 1,
            of_receiver: 1,
        })
    }

    fn put(&self, args: &mut Args) {
        match &self.exchange {
            None => args.put("--exchange", "amq.default"),
            Some(name) => {
                args.put("--exchange", name);
                args.put("--type", "fanout");
            }
        }
        match &self.named {
            Named::None => {}
            Named::One(queue) => {
                args.put("--queue", queue);
                args.put("--routing-key", queue);
            }
            Named::Numbered(pattern, last) => {
                args.put("--queue-pattern", pattern);
                args.put("--queue-pattern-from", 0);
                args.put("--queue-pattern-to", last);
            }
        }
    }
}

#[derive(Default)]
struct Args(Vec<String>);

impl Args {
    fn flag(&mut self, name: &str) {
        self.0.push(name.to_owned());
    }

    #[expect(clippy::needless_pass_by_value, reason = "numbers and names, as they come")]
    fn put(&mut self, name: &str, value: impl ToString) {
        self.flag(name);
        self.0.push(value.to_string());
    }
}

/// Reads what it prints.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines {
    last_s: f64,
}

impl Lines {
    /// # Errors
    /// Where a line looks like figures and is none.
    pub(super) fn on_line(&mut self, line: &str) -> Result<Heard, String> {
        if let Some((_, reason)) = line.split_once("test stopped (") {
            return Ok(Heard::Ends(reason.trim_end().trim_end_matches(')').to_owned()));
        }
        let Some((time, fields)) = line
            .strip_prefix("id: ")
            .and_then(|rest| rest.split_once(", time "))
            .and_then(|(_, rest)| rest.split_once(" s, "))
        else {
            return Ok(Heard::Nothing);
        };
        let figures = time
            .parse::<f64>()
            .ok()
            .filter(|time| time.is_finite() && *time > self.last_s);
        let figures = figures.and_then(|until_s| Some((until_s, Figures::of(fields)?)));
        let Some((until_s, figures)) = figures else {
            return Err(format!("{NAME} printed what is not understood: {line}"));
        };
        let seconds = until_s - self.last_s;
        self.last_s = until_s;
        Ok(figures.heard(until_s, seconds))
    }
}

/// The fields of a line; rates are per second.
#[derive(Default)]
struct Figures {
    sent: Option<f64>,
    returned: Option<f64>,
    confirmed: Option<f64>,
    nacked: Option<f64>,
    received: Option<f64>,
    consumer: Option<Quantiles>,
    confirm: Option<Quantiles>,
}

impl Figures {
    fn of(fields: &str) -> Option<Self> {
        let mut figures = Self::default();
        for field in fields.split(", ") {
            let (name, value) = field.split_once(": ")?;
            match name.strip_prefix(PERCENTILES).unwrap_or(name) {
                "sent" => figures.sent = Some(rate(value)?),
                "returned" => figures.returned = Some(rate(value)?),
                "confirmed" => figures.confirmed = Some(rate(value)?),
                "nacked" => figures.nacked = Some(rate(value)?),
                "received" => figures.received = Some(rate(value)?),
                "consumer latency" => figures.consumer = Some(quantiles(value)?),
                "confirm latency" => figures.confirm = Some(quantiles(value)?),
                _ => return None,
            }
        }
        Some(figures)
    }

    fn heard(&self, until_s: f64, seconds: f64) -> Heard {
        let count = |rate: Option<f64>| rate.unwrap_or(0.0) * seconds;
        // All of them are 0 where there was no message.
        let of_any = |known: Option<Quantiles>| known.filter(|known| known.p99 > 0.0);
        let alone = Interval {
            until_s,
            seconds,
            ..Interval::default()
        };
        let sent = self.sent.map(|sent| Interval {
            sent: sent * seconds,
            // Where nothing is confirmed, what was written counts.
            acknowledged: count(self.confirmed.or(self.sent)),
            failed: count(self.nacked) + count(self.returned),
            quantiles: of_any(self.confirm),
            ..alone
        });
        let received = self.received.map(|received| Interval {
            received: received * seconds,
            quantiles: of_any(self.consumer),
            ..alone
        });
        Heard::interval(sent, received)
    }
}

/// `20311 msg/s`.
fn rate(text: &str) -> Option<f64> {
    let rate: f64 = text.strip_suffix(" msg/s")?.parse().ok()?;
    (rate.is_finite() && rate >= 0.0).then_some(rate)
}

/// `210/890/1204/3020/5871 µs`.
fn quantiles(text: &str) -> Option<Quantiles> {
    let mut values = text.strip_suffix(" µs")?.split('/').map(|value| {
        let value: u64 = value.parse().ok()?;
        Some(value as f64)
    });
    let mut next = || values.next().flatten();
    let known = Quantiles {
        min: next()?,
        p50: next()?,
        p75: next()?,
        p95: next()?,
        p99: next()?,
    };
    let rises =
        known.min <= known.p50 && known.p50 <= known.p75 && known.p75 <= known.p95 && known.p95 <= known.p99;
    (rises && values.next().is_none()).then_some(known)
}
