//! Numbers that follow from a plan: the same on every host that runs a part of it.

use std::time::Duration;

use super::client_placement::STREAMS_PER_ROLE;
use super::pace::steps_at;
use crate::experiment::{Does, Plan, Rate, Role, Steps};

pub(super) fn stream(place: usize, party: u32) -> u32 {
    let first = u32::try_from(place + 1)
        .unwrap_or(1)
        .saturating_mul(STREAMS_PER_ROLE);
    first.saturating_add(party)
}

/// The streams of a role on all hosts: one for all clients that send the same.
pub(crate) fn streams(place: usize, role: &Role) -> impl Iterator<Item = u32> + use<> {
    let sends = role.does.sends_first() || role.does == Does::Respond;
    let parties = if sends {
        role.clients.div_ceil(role.copies.max(1))
    } else {
        0
    };
    (0..parties).map(move |party| stream(place, party))
}

/// Messages that several clients send make up the rate together.
pub(super) fn rate_of_one(role: &Role) -> Rate {
    let copies = f64::from(role.copies.max(1));
    match &role.rate {
        Rate::Fixed(rate) => Rate::Fixed(rate / copies),
        Rate::Poisson(rate) => Rate::Poisson(rate / copies),
        Rate::Steps(steps) => Rate::Steps(Steps {
            first: steps.first / copies,
            add: steps.add / copies,
            up_to: steps.up_to / copies,
            every: steps.every,
        }),
        Rate::Closed | Rate::Adaptive(_) => role.rate.clone(),
    }
}

/// The name of the set that a role uses.
pub(crate) fn set<'a>(plan: &'a Plan, role: &'a Role) -> Option<&'a String> {
    role.topics.as_ref().or_else(|| plan.topics.keys().next())
}

/// Returns how often a message of the role's set comes to all of its clients together.
pub(crate) fn deliveries(plan: &Plan, role: &Role) -> u64 {
    u64::from(audiences(role)) * u64::from(each(plan, role))
}

/// Returns the number of the role's audiences.
pub(crate) fn audiences(role: &Role) -> u32 {
    if role.fan_out { role.clients } else { 1 }
}

/// Returns the roles that receive a role's messages from the start.
pub(crate) fn readers<'a>(plan: &'a Plan, sender: &'a Role) -> impl Iterator<Item = (usize, &'a Role)> {
    let reads = |role: &Role| role.does == Does::Consume && role.after.is_none();
    let roles = plan.roles.values().enumerate();
    roles.filter(move |(_, role)| reads(role) && set(plan, role) == set(plan, sender))
}

/// Returns the roles that send a consumer's messages.
pub(crate) fn producers<'a>(plan: &'a Plan, consumer: &'a Role) -> impl Iterator<Item = (usize, &'a Role)> {
    let roles = plan.roles.values().enumerate();
    // The records that its readers wait for go to an app.
    let assembles = consumer.does == Does::Assemble;
    let wanted = consumer.to.as_ref().filter(|_| assembles);
    let wanted = wanted.or_else(|| set(plan, consumer));
    roles.filter(move |(_, role)| role.does == Does::Produce && set(plan, role) == wanted)
}

/// Returns how often every message comes to an audience of the role: to all followers of its topic and,
/// without a filter, all of its copies.
pub(crate) fn each(plan: &Plan, role: &Role) -> u16 {
    let topics = set(plan, role).and_then(|own| plan.topics.get(own));
    let (Some(follows), Some(topics)) = (role.follows, topics) else {
        return 1;
    };
    let followers = u64::from(role.clients) * u64::from(role.users) * u64::from(follows);
    let copies = producers(plan, role)
        .map(|(_, producer)| producer.copies)
        .max()
        .unwrap_or(1);
    let copies = if topics.filter.is_some() { 1 } else { copies };
    let each = followers / u64::from(topics.count.max(1)) * u64::from(copies);
    u16::try_from(each).unwrap_or(u16::MAX)
}

/// Returns the time that a filter remembers: that of the topics behind it.
pub(super) fn window(plan: &Plan, role: &Role) -> Duration {
    let topics = role.to.as_ref().and_then(|set| plan.topics.get(set));
    let filter = topics.and_then(|topics| topics.filter);
    filter.map_or(Duration::ZERO, |filter| filter.0)
}

/// Returns true if a role ends with a number of messages: its rate is that of its own time.
pub(crate) fn is_bounded(plan: &Plan, role: &Role) -> bool {
    let mut producers = producers(plan, role).peekable();
    match role.does {
        Does::Produce => role.total.is_some(),
        Does::Consume => {
            let is_sent = producers.peek().is_some() && producers.all(|(_, other)| other.total.is_some());
            role.after.is_some() || is_sent
        }
        Does::Relay
        | Does::Request
        | Does::Respond
        | Does::Filter
        | Does::Assemble
        | Does::Peek
        | Does::Idle => false,
    }
}

/// Returns the number of a role's clients that have arrived at a moment, in seconds since the load began.
pub(crate) fn present(role: &Role, at_s: f64) -> f64 {
    let all = f64::from(role.clients);
    let Some(arrive) = &role.arrive else { return all };
    let waves = (at_s / arrive.every.0.as_secs_f64().max(1e-9)).floor();
    (f64::from(arrive.first) + waves * f64::from(arrive.add)).min(all)
}

/// Returns how many messages a role was asked to send between two moments, in seconds since the load began;
/// `None` if that is not known beforehand.
pub(crate) fn asked(role: &Role, from_s: f64, to_s: f64) -> Option<f64> {
    /// So finely a rate that changes is added up, in seconds.
    const STEP_S: f64 = 0.05;
    if role.total.is_some() || role.after.is_some() {
        return None;
    }
    let rate = |at_s: f64| match &role.rate {
        Rate::Fixed(rate) | Rate::Poisson(rate) => Some(*rate),
        Rate::Steps(steps) => Some(steps_at(steps, at_s)),
        Rate::Closed | Rate::Adaptive(_) => None,
    };
    let present = |at_s: f64| present(role, at_s) / f64::from(role.clients.max(1));
    let (mut at_s, mut sum) = (from_s, 0.0);
    while at_s < to_s {
        let length = STEP_S.min(to_s - at_s);
        let middle = at_s + length / 2.0;
        sum += rate(middle)? * present(middle) * length;
        at_s += length;
    }
    Some(sum)
}

/// Returns the time at which a client comes.
pub(super) fn delay(role: &Role, client: u32) -> Duration {
    match &role.arrive {
        Some(arrive) if client >= arrive.first => {
            let wave = (client - arrive.first) / arrive.add.max(1) + 1;
            arrive.every.0.saturating_mul(wave)
        }
        _ => Duration::ZERO,
    }
}
