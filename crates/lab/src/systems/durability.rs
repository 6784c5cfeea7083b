//! What was asked for against what there is. A level that a system lacks is shown as its nearest lower one, never as equal.

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

/// Kafka answers when the operating system has the batch; `flush.messages` and `flush.ms` sync before or behind that
/// (Kafka documentation, topic configurations).
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

/// A quorum queue's log is synced before the confirm; a classic queue's messages, if persistent, are written, and synced
/// at intervals that a publisher does not wait for (RabbitMQ documentation, quorum queues and publisher confirms).
pub fn rabbitmq(asked: &str, plan: &Plan) -> Given {
    let is_quorum = plan
        .topics
        .values()
        .any(|topics| topics.queue_type.as_deref() == Some("quorum"));
    match asked.parse() {
        Ok(Level::Memory) if !is_quorum => given(asked, "memory", Some("transient messages"), &[]),
        _ if is_quorum => given(
            asked,
            "sync",
            Some("a quorum queue syncs its log before it confirms"),
            &[],
        ),
        Ok(Level::Os) => given(asked, "os", Some("persistent messages with confirms"), &[]),
        _ => given(
            asked,
            "os",
            Some("a classic queue has no more than persistent messages with confirms"),
            &[],
        ),
    }
}

/// Nothing is acknowledged where nobody waits for an answer.
pub fn without_acknowledgement(mut durability: Durability, plan: &Plan) -> Durability {
    let mut senders = plan
        .roles
        .values()
        .filter(|role| role.does.sends_first())
        .peekable();
    if senders.peek().is_some() && senders.all(|role| role.delivery == Delivery::AtMostOnce) {
        durability.given = "none".to_owned();
        durability.note = Some("at most once: nothing is acknowledged".to_owned());
    }
    durability
}

#[cfg(test)]
mod tests {
    use super::*;

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
