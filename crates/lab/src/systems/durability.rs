//! The durability that was asked for against the levels that there are. A level that a system lacks is shown
//! as its nearest lower one, never as equal.

use stafett_model::Durability as Level;

use crate::experiment::{Delivery, Plan};
use crate::results::Durability;

type Given = (Vec<(String, String)>, Durability);

fn given(asked: &str, given: &str, note: Option<&str>, settings: &[(&str, String)]) -> Given {
    let settings = settings
        .iter()
        .map(|(name, value)| ((*name).to_owned(), value.clone()))
        .collect();
    let durability = Durability {
        asked: asked.to_owned(),
        given: given.to_owned(),
        note: note.map(str::to_owned),
    };
    (settings, durability)
}

/// Every level is its own.
pub fn stafett(asked: &str) -> Given {
    given(asked, asked, None, &[("stafett.durability", asked.to_owned())])
}

/// Kafka answers when the operating system has the batch; `flush.messages` and `flush.ms` sync before or
/// behind that (Kafka documentation, topic configurations).
pub fn kafka(asked: &str) -> Given {
    match asked.parse() {
        Ok(Level::Sync) => given(
            asked,
            "sync",
            Some("flush.messages=1: the log is flushed before the append returns"),
            &[("flush.messages", "1".to_owned())],
        ),
        Ok(Level::Interval { records, every }) => given(
            asked,
            asked,
            Some(
                "flush.messages and flush.ms; Kafka looks at the clock every log.flush.scheduler.interval.ms",
            ),
            &[
                ("flush.messages", records.to_string()),
                ("flush.ms", every.as_millis().to_string()),
            ],
        ),
        Ok(Level::Memory) => given(
            asked,
            "os",
            Some("Kafka has no level below `os`: it always writes to the operating system"),
            &[],
        ),
        Ok(Level::Os) | Err(_) => given(asked, "os", None, &[]),
    }
}

/// Over AMQP the level is that of the queue (`x-stafett-durability`); transient messages have none.
pub fn stafett_queues(asked: &str, plan: &Plan) -> Given {
    if asked.parse() == Ok(Level::Memory) {
        let (durable, note) = if queue_types(plan).all(|kind| kind != Some("quorum")) {
            ("false", "transient messages in queues that are not durable")
        } else {
            ("true", "transient messages: a quorum queue is always durable")
        };
        let settings = [("durable", durable.to_owned()), ("delivery_mode", "1".to_owned())];
        return given(asked, "memory", Some(note), &settings);
    }
    let [durable, persistent] = persistent();
    let level = ("x-stafett-durability", asked.to_owned());
    given(
        asked,
        asked,
        Some("persistent messages in durable queues of that level"),
        &[durable, persistent, level],
    )
}

/// RabbitMQ's switches are durable queues, persistent messages and the type of the queue.
///
/// - A classic queue confirms a persistent message once it is written to the store's file, without a sync: it
///   survives a killed process, and not a power loss (its store in 4.0, `rabbit_classic_queue_store_v2` and
///   `rabbit_msg_store`, only writes).
/// - A quorum queue confirms once a majority has it in its write-ahead log, which is synced first (Ra,
///   `wal_sync_method`, `datasync` by default; RabbitMQ documentation, quorum queues). It has no weaker
///   level.
/// - Transient messages in queues that are not durable are gone with the process.
pub fn rabbitmq(asked: &str, plan: &Plan) -> Given {
    let are_all = |wanted: Option<&str>| queue_types(plan).all(|kind| kind == wanted);
    let level = asked.parse();
    let [durable, persistent] = persistent();
    if are_all(Some("quorum")) || level == Ok(Level::Sync) && are_all(None) {
        let kind = ("x-queue-type", "quorum".to_owned());
        let note = "quorum queues: the log is synced before the confirm";
        return given(asked, "sync", Some(note), &[durable, persistent, kind]);
    }
    let has_quorum = queue_types(plan).any(|kind| kind == Some("quorum"));
    match level {
        Ok(Level::Memory) if !has_quorum => {
            let settings = [("durable", "false".to_owned()), ("delivery_mode", "1".to_owned())];
            let note = "transient messages in queues that are not durable";
            given(asked, "memory", Some(note), &settings)
        }
        Ok(Level::Os) => given(
            asked,
            "os",
            Some("persistent messages in durable classic queues: written before the confirm"),
            &[durable, persistent],
        ),
        _ => given(
            asked,
            "os",
            Some("a classic queue writes before it confirms and does not sync: it has no level above `os`"),
            &[durable, persistent],
        ),
    }
}

fn persistent() -> [(&'static str, String); 2] {
    [("durable", "true".to_owned()), ("delivery_mode", "2".to_owned())]
}

/// Returns the types of queues that the plan asks for.
fn queue_types(plan: &Plan) -> impl Iterator<Item = Option<&str>> {
    plan.topics.values().map(|topics| topics.queue_type.as_deref())
}

/// Sets the level to `none` if no sender waits for an answer.
pub fn without_acknowledgement(mut durability: Durability, plan: &Plan) -> Durability {
    let mut senders = plan
        .roles
        .values()
        .filter(|role| role.does.sends_first())
        .peekable();
    if senders.peek().is_some() && senders.all(|role| role.delivery == Delivery::AtMostOnce) {
        "none".clone_into(&mut durability.given);
        durability.note = Some("at most once: nothing is acknowledged".to_owned());
    }
    durability
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::Source;

    fn plan(queue: &str) -> Plan {
        let source = Source::new(
            "x",
            format!(
                "question = \"?\"\nsystems = [\"rabbitmq\"]\n[topics.main]\n{queue}\n[roles.p]\ndoes = \"produce\""
            ),
        );
        source.plan(1.0, &std::collections::BTreeMap::new()).unwrap()
    }

    #[test]
    fn rabbitmq_syncs_in_quorum_queues_alone() {
        let (any, classic, quorum) = (
            plan(""),
            plan("kind = \"queue\"\nqueue_type = \"classic\""),
            plan("kind = \"queue\"\nqueue_type = \"quorum\""),
        );
        let given = |asked, plan| rabbitmq(asked, plan).1.given;
        assert_eq!(given("memory", &any), "memory");
        assert_eq!(given("os", &any), "os");
        assert_eq!(given("interval:5,6", &any), "os");
        assert_eq!(given("sync", &any), "sync");
        assert_eq!(given("sync", &classic), "os");
        assert_eq!(given("os", &quorum), "sync");
        let (settings, _) = rabbitmq("sync", &any);
        assert!(settings.contains(&("x-queue-type".to_owned(), "quorum".to_owned())));
    }

    #[test]
    fn stafetts_queues_have_every_level() {
        for level in ["os", "interval:5,6", "sync"] {
            let (settings, durability) = stafett_queues(level, &plan(""));
            assert_eq!(durability.given, level);
            assert!(settings.contains(&("x-stafett-durability".to_owned(), level.to_owned())));
        }
        let (settings, durability) = stafett_queues("memory", &plan(""));
        assert_eq!(durability.given, "memory");
        assert!(settings.contains(&("delivery_mode".to_owned(), "1".to_owned())));
    }

    #[test]
    fn a_level_that_is_not_there_is_shown_as_what_is() {
        assert_eq!(stafett("interval:5,6").1.given, "interval:5,6");
        assert_eq!(kafka("memory").1.given, "os");
        assert_eq!(kafka("os").0, []);
        assert_eq!(kafka("sync").0, [("flush.messages".to_owned(), "1".to_owned())]);
        let (settings, durability) = kafka("interval:100,20");
        assert_eq!(settings[1], ("flush.ms".to_owned(), "20".to_owned()));
        assert_eq!(
            (durability.given.as_str(), durability.asked.as_str()),
            ("interval:100,20", "interval:100,20")
        );
    }
}
