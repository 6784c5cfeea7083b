//! Contradictions of roles that assemble sessions.

use super::check::{Checked, refuse};
use super::load::{Does, Role, TopicKind};
use super::{DriverKind, Plan, Protocol, Rate};

/// Checks a role against the plan, if it has to do with sessions.
pub(super) fn check(at: &str, role: &Role, plan: &Plan) -> Checked {
    let assembles = role.does == Does::Assemble;
    if !assembles {
        return match &role.session {
            Some(_) => refuse(
                at,
                "session",
                "`session` is for a role that does `assemble`".to_owned(),
            ),
            None => Ok(()),
        };
    }
    check_sets(at, role, plan)?;
    check_session(at, role, plan)
}

/// Checks the sets that the role reads and writes.
fn check_sets(at: &str, role: &Role, plan: &Plan) -> Checked {
    let (Some(from), Some(to)) = (&role.topics, &role.to) else {
        let why = "one that does `assemble` names the set that it reads (`topics`) and the one that it writes (`to`)";
        return refuse(at, "to", why.to_owned());
    };
    let is_single = |set: &String| {
        let found = plan.topics.get(set);
        found.is_none_or(|topics| topics.kind == TopicKind::Topic && topics.count == 1)
    };
    let is_shared = |other: &&Role| other.does == Does::Assemble && other.topics == role.topics;
    let is_alone = plan.roles.values().filter(is_shared).count() == 1;
    let is_sent_plainly = plan.roles.values().all(|other| {
        let sends = other.does == Does::Produce && other.topics == role.topics;
        !sends || other.copies == 1
    });
    first_of(
        at,
        &[
            ("to", from != to, "an app does not write to the set that it reads"),
            (
                "topics",
                is_single(from),
                "an app reads one stored topic, with partitions: count = 1",
            ),
            ("to", is_single(to), "sessions go to one stored topic: count = 1"),
            (
                "topics",
                is_alone,
                "one role assembles the sessions of a set: its clients share them",
            ),
            (
                "topics",
                is_sent_plainly,
                "sessions are of one sender: copies = 1",
            ),
            ("rate", role.rate == Rate::Closed, "it takes what comes"),
        ],
    )
}

/// Checks the sessions, and the time that they may take.
fn check_session(at: &str, role: &Role, plan: &Plan) -> Checked {
    let session = role.session.clone().unwrap_or_default();
    let speaks = plan
        .run
        .protocol
        .is_none_or(|protocol| protocol == Protocol::Kafka);
    let is_lean = plan.run.driver == DriverKind::Lean && speaks;
    first_of(
        at,
        &[
            (
                "session.fragments",
                (1..=1000).contains(&session.fragments),
                "sessions have 1 to 1000 messages",
            ),
            (
                "session.open",
                (1..=1000).contains(&session.open),
                "1 to 1000 sessions are under way at once",
            ),
            (
                "session.unended",
                (0.0..=1.0).contains(&session.unended),
                "`unended` is a share, 0 to 1",
            ),
            (
                "does",
                is_lean,
                "sessions take the lean driver of Kafka's protocol",
            ),
        ],
    )?;
    let least = session.timeout.0 + session.worker_timeout.0;
    if plan.run.settle.0 < least {
        let least = least.as_millis();
        let why = format!("sessions may come {least} ms after their last message");
        return refuse("run", "settle", why);
    }
    Ok(())
}

/// Refuses the first setting of which it does not hold.
fn first_of(at: &str, rules: &[(&str, bool, &str)]) -> Checked {
    match rules.iter().find(|(_, holds, _)| !holds) {
        Some((setting, _, message)) => refuse(at, setting, (*message).to_owned()),
        None => Ok(()),
    }
}
