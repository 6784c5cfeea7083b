//! Contradictions of roles.

use super::{CLIENTS_MAX, Checked, refuse};
use crate::experiment::load::{Acks, Delivery, Does, Rate, Role, Size, TopicKind, Topics};
use crate::experiment::load::{DrawnPriority, Priority};
use crate::experiment::{Distribution, Plan};

pub(super) fn check_role(at: &str, role: &Role) -> Checked {
    let does = role.does.name();
    let (produces, consumes) = (role.does == Does::Produce, role.does == Does::Consume);
    rules! { at =>
        "clients", (1..=CLIENTS_MAX).contains(&role.clients), "clients are 1 to {CLIENTS_MAX}";
        "rate", role.does.sends_first() || role.rate == Rate::Closed,
            "a role that does `{does}` has no rate of its own";
        "window", role.rate == Rate::Closed || role.window.is_none(),
            "`window` is for a closed loop, and `rate` makes it an open one";
        "window", role.window != Some(0), "nothing may be sent with a window of 0";
        "duplicates", (0.0..=1.0).contains(&role.duplicates), "`duplicates` is a share, 0 to 1";
        "in_flight", (1..=100_000).contains(&role.in_flight), "1 to 100000 requests are under way";
        "batch", (64..=64 << 20).contains(&role.batch.0), "batches are 64 B to 64 MiB";
        "prefetch", role.prefetch.is_none_or(|prefetch| prefetch <= u16::MAX.into()),
            "a prefetch is at most 65,535";
        "work", consumes || role.work.is_none(), "a role that does `{does}` has no other work";
        "work", role.work.as_ref().is_none_or(|work| work.bulk > 0),
            "at least one message is handed over: bulk = 1";
        "fan_out", consumes || !role.fan_out, "a role that does `{does}` does not share what it receives";
        "priority", role.does.sends_first() || role.does == Does::Respond || role.priority.is_none(),
            "a role that does `{does}` sends nothing";
        "priority", role.priority.as_ref().is_none_or(has_priority),
            "priorities are 0 to 255; of a range the first is the smaller; weights are numbers, and one is above 0";
        "select", consumes || role.does == Does::Peek || role.select.is_none(),
            "a role that does `{does}` does not choose messages";
        "registered", role.does.sends_first() || !role.registered,
            "only clients that send are registered";
        "poll", !produces && role.does != Does::Idle || role.poll.is_none(),
            "a role that does `{does}` receives nothing";
        "poll", role.poll.is_none_or(|every| !every.0.is_zero()), "there is some time between two polls";
        "think", role.does == Does::Request && role.rate == Rate::Closed && role.window.unwrap_or(1) == 1
            || role.think.is_none(),
            "time to think is of a role that does `request` in a closed loop, with one question at a time";
        "leave", consumes || !role.leave, "a role that does `{does}` does not unsubscribe";
        "total", produces || role.total.is_none(),
            "a role that does `{does}` never ends: `total` is for one that does `produce`";
        "duplicates", produces || role.duplicates <= 0.0,
            "a role that does `{does}` sends nothing twice: `duplicates` is for one that does `produce`";
        "kill", consumes || role.does == Does::Assemble || role.kill.is_none(),
            "a role that does `{does}` is not cut off: `kill` is for one that does `consume` or `assemble`";
        "rate", has_rate(&role.rate),
            "rates are more than 0 and at most 1,000,000,000 per second, times more than 0, `raise` 1 to 10";
        "size", has_size(&role.size),
            "messages have at most 64 MiB; of a range the first is the smaller; sigma is 0 to 10";
    }
    Ok(())
}

pub(super) fn check_sending(at: &str, role: &Role) -> Checked {
    let (produces, consumes) = (role.does == Does::Produce, role.does == Does::Consume);
    let is_fitting = match role.acks() {
        Acks::None => role.delivery == Delivery::AtMostOnce,
        Acks::Leader => role.delivery == Delivery::AtLeastOnce,
        Acks::All => role.delivery != Delivery::AtMostOnce,
    };
    let is_transaction = role.delivery == Delivery::ExactlyOnce
        && produces
        && role.transaction.is_none_or(|span| !span.0.is_zero());
    let sends_alike = produces
        && role.total.is_none()
        && role.copies > 0
        && role.clients.is_multiple_of(role.copies)
        && !matches!(role.rate, Rate::Closed | Rate::Adaptive(_));
    let may_be_ahead = produces && role.rate == Rate::Closed && role.ahead != Some(0);
    rules! { at =>
        "acks", role.acks.is_none() || is_fitting && !consumes,
            "of a role that sends, acks = \"0\" goes with delivery = \"at-most-once\", \"1\" with \
             \"at-least-once\", and \"all\" with \"at-least-once\" and \"exactly-once\"";
        "transaction", role.transaction.is_none() || is_transaction,
            "transactions, longer than no time, are of a role that does `produce` with delivery = \"exactly-once\"";
        "copies", role.copies == 1 || sends_alike,
            "copies are for a role that does `produce` at a rate of its own, without a total; its clients are a \
             multiple of them";
        "ahead", role.ahead.is_none() || may_be_ahead,
            "`ahead` is for a role that does `produce` in a closed loop, and at least 1";
    }
    Ok(())
}

pub(super) fn check_receiving(at: &str, role: &Role) -> Checked {
    let does = role.does.name();
    let subscribes = role.does == Does::Consume;
    rules! { at =>
        "users", subscribes || role.users == 1, "a role that does `{does}` does not subscribe";
        "follows", subscribes || role.follows.is_none(), "a role that does `{does}` does not subscribe";
        "users", (1..=1000).contains(&role.users), "1 to 1000 subscribers share a connection";
        "users", role.users == 1 || role.follows.is_some(),
            "what each of several subscribers follows has to be said: `follows`";
        "fan_out", role.follows.is_none() || !role.fan_out,
            "who follows some topics does not get everything";
    }
    Ok(())
}

/// Checks that every topic has as many followers as any other, so that missing messages can be counted.
fn check_following(at: &str, role: &Role, topics: &Topics) -> Checked {
    let is_live = topics.kind == TopicKind::Live;
    rules! { at =>
        "follows", is_live || role.follows.is_none(),
            "only live topics are followed one by one: kind = \"live\"";
    }
    let Some(follows) = role.follows else {
        return Ok(());
    };
    let (subscribers, count) = (u64::from(role.clients) * u64::from(role.users), topics.count);
    let followers = subscribers * u64::from(follows);
    let each = followers / u64::from(count.max(1));
    let is_even = followers.is_multiple_of(u64::from(count)) && u16::try_from(each).is_ok();
    rules! { at =>
        "follows", (1..=count).contains(&follows) && is_even,
            "{subscribers} subscribers that follow {follows} of {count} topics each do not make the same whole number \
             (at most 65,535) of followers for every topic";
    }
    Ok(())
}

/// Returns true if this many messages per second can be sent.
pub(crate) fn is_rate(rate: f64) -> bool {
    rate > 0.0 && rate <= 1e9
}

fn has_rate(rate: &Rate) -> bool {
    match rate {
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
    }
}

fn has_size(size: &Size) -> bool {
    const BYTES_MAX: u64 = 64 << 20;
    match size {
        Size::Fixed(bytes) => bytes.0 <= BYTES_MAX,
        Size::Distributed(Distribution::Uniform([low, high])) => low <= high && high.0 <= BYTES_MAX,
        Size::Distributed(Distribution::Lognormal([median, sigma])) => {
            (1.0..=BYTES_MAX as f64).contains(median) && (0.0..=10.0).contains(sigma)
        }
    }
}

fn has_priority(priority: &Priority) -> bool {
    match priority {
        Priority::Fixed(_) => true,
        Priority::Drawn(DrawnPriority::Uniform([low, high])) => low <= high,
        Priority::Drawn(DrawnPriority::Weights(weights)) => {
            weights.len() <= 256
                && weights.iter().all(|weight| *weight >= 0.0 && weight.is_finite())
                && weights.iter().any(|weight| *weight > 0.0)
        }
    }
}

/// Checks that topics and roles that a role names are there.
pub(super) fn check_names(at: &str, name: &str, role: &Role, plan: &Plan) -> Checked {
    for (setting, set) in [("topics", &role.topics), ("to", &role.to)] {
        match set {
            Some(set) => {
                rules! { at => setting, plan.topics.contains_key(set), "there is no [topics.{set}]"; }
            }
            None => rules! { at =>
                "", setting == "to" || plan.topics.len() == 1,
                    "there are several sets of topics: which one does `{name}` use?";
            },
        }
    }
    let set = match &role.topics {
        Some(set) => plan.topics.get(set),
        None => plan.topics.values().next(),
    };
    let are_queues = plan.topics.values().all(|topics| topics.kind == TopicKind::Queue);
    rules! { at =>
        "priority", role.priority.is_none() || are_queues,
            "only messages of queues have priorities: kind = \"queue\"";
    }
    if let Some(topics) = set {
        check_following(at, role, topics)?;
    }
    // No role waits for itself, however many wait in between.
    let mut before = role.after.as_deref();
    let mut steps = 0;
    while let Some(other) = before {
        let found = plan.roles.get(other);
        let ends = found.is_some_and(|found| found.total.is_some());
        steps += 1;
        rules! { at =>
            "after", found.is_some(), "there is no role `{other}`";
            "after", other != name && steps <= plan.roles.len(), "`{name}` would wait for itself";
            "after", ends, "`{other}` never ends: it needs a total";
        }
        before = found.and_then(|found| found.after.as_deref());
    }
    Ok(())
}
