//! Dead-letter history of messages, and detection of dead-letter cycles.

use bytestring::ByteString;
use stafett_model::{Death, DeathReason, Message};

/// Records that a message leaves `queue` as a dead letter; with `loses_keys`, under the queue's own routing
/// key. The message loses its time to live, whatever the reason: dead letters wait for as long as it takes.
pub fn record(message: &mut Message, queue: &ByteString, reason: DeathReason, loses_keys: bool, now_ms: i64) {
    let keys_were_lost = keys_are_lost(message);
    let known = message
        .deaths
        .iter()
        .position(|death| death.queue == *queue && death.reason == reason);
    let ttl_ms = message.ttl_ms.take();
    let death = match known {
        Some(at) => {
            let death = message.deaths.remove(at);
            Death {
                count: death.count.saturating_add(1),
                loses_keys: death.loses_keys || loses_keys,
                ..death
            }
        }
        None => Death {
            queue: queue.clone(),
            reason,
            count: 1,
            first_ms: now_ms,
            exchange: message.exchange.clone(),
            routing_key: message.routing_key.clone(),
            ttl_ms,
            is_first: message.deaths.is_empty(),
            keys_were_lost,
            loses_keys,
        },
    };
    message.deaths.insert(0, death);
}

/// Returns true if a message has lost the further routing keys that it was published with.
pub fn keys_are_lost(message: &Message) -> bool {
    // Older versions did not store the flag: there a changed key shows it.
    let mut deaths = message.deaths.iter();
    deaths.any(|death| death.loses_keys || (death.is_first && death.routing_key != message.routing_key))
}

/// Returns true if dead-lettering a message to `queue` closes a cycle without a consumer: it was in the queue
/// before and has not been rejected since.
pub fn is_circle(message: &Message, queue: &str) -> bool {
    // The latest death is first: entries before the queue's own are later.
    let since = message.deaths.iter().position(|death| death.queue == queue);
    since.is_some_and(|at| {
        message
            .deaths
            .iter()
            .take(at + 1)
            .all(|death| death.reason != DeathReason::Rejected)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deaths_are_counted_by_queue_and_reason_the_latest_first() {
        let mut message = Message {
            ttl_ms: Some(7),
            ..Message::default()
        };
        record(&mut message, &"a".into(), DeathReason::Expired, false, 1);
        record(&mut message, &"b".into(), DeathReason::Rejected, false, 2);
        record(&mut message, &"a".into(), DeathReason::Expired, false, 3);
        for reason in [
            DeathReason::Rejected,
            DeathReason::Length,
            DeathReason::DeliveryLimit,
        ] {
            let mut message = Message {
                ttl_ms: Some(9),
                ..Message::default()
            };
            record(&mut message, &"a".into(), reason, false, 1);
            assert_eq!((message.ttl_ms, message.deaths[0].ttl_ms), (None, Some(9)));
        }
        let seen: Vec<_> = message
            .deaths
            .iter()
            .map(|death| (&*death.queue, death.count, death.first_ms, death.is_first))
            .collect();
        assert_eq!(seen, [("a", 2, 1, true), ("b", 1, 2, false)]);
        assert_eq!((message.ttl_ms, message.deaths[0].ttl_ms), (None, Some(7)));
    }

    #[test]
    fn a_key_of_the_queue_takes_all_others_away_even_if_it_is_the_same() {
        let mut message = Message {
            routing_key: "k".into(),
            ..Message::default()
        };
        let lost = |message: &Message| {
            let deaths = message.deaths.iter();
            deaths.map(|death| death.keys_were_lost).collect::<Vec<_>>()
        };
        record(&mut message, &"a".into(), DeathReason::Rejected, false, 1);
        assert!(!keys_are_lost(&message));
        record(&mut message, &"b".into(), DeathReason::Rejected, true, 2);
        assert!(
            keys_are_lost(&message),
            "the key of the queue is the message's own"
        );
        record(&mut message, &"c".into(), DeathReason::Rejected, false, 3);
        assert_eq!(lost(&message), [true, false, false]);
        record(&mut message, &"a".into(), DeathReason::Rejected, false, 4);
        assert_eq!(
            lost(&message),
            [false, true, false],
            "as it was when that happened first"
        );
        message
            .deaths
            .iter_mut()
            .for_each(|death| death.loses_keys = false);
        assert!(!keys_are_lost(&message));
        message.routing_key = "other".into();
        assert!(keys_are_lost(&message), "as older versions stored it");
    }

    #[test]
    fn a_circle_is_cut_unless_a_consumer_turned_it() {
        let mut message = Message::default();
        record(&mut message, &"a".into(), DeathReason::Expired, false, 1);
        assert!(is_circle(&message, "a") && !is_circle(&message, "b"));
        record(&mut message, &"b".into(), DeathReason::Rejected, false, 2);
        assert!(!is_circle(&message, "a"), "it was rejected on the way");
        record(&mut message, &"a".into(), DeathReason::Expired, false, 3);
        assert!(is_circle(&message, "a"), "the circle is of expiry alone");
    }
}
