//! Settings that a policy makes for many queues. They lie between those of a queue's declaration and those
//! changed since.

use bytestring::ByteString;

use crate::settings::{DeadLetter, Overflow, QueueSettings};

/// Settings of a policy; absent where it says nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PolicySettings {
    pub ttl_ms: Option<u64>,
    pub expires_ms: Option<u64>,
    pub length_max: Option<u64>,
    pub bytes_max: Option<u64>,
    pub overflow: Option<Overflow>,
    pub dead_letter_exchange: Option<ByteString>,
    pub dead_letter_key: Option<ByteString>,
    pub delivery_limit: Option<DeliveryLimit>,
}

/// Number of times a message may be returned, by a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeliveryLimit {
    Returns(u32),
    None,
}

impl DeliveryLimit {
    fn of(limit: Option<u32>) -> Self {
        limit.map_or(Self::None, Self::Returns)
    }

    fn number(self) -> Option<u32> {
        match self {
            Self::Returns(count) => Some(count),
            Self::None => None,
        }
    }
}

/// Returns the smaller of two bounds, either of which may be absent.
fn least<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

impl PolicySettings {
    /// Returns these settings within those of an operator: the smaller of two numbers, and the operator's
    /// choice otherwise.
    #[must_use]
    pub fn within(&self, operator: &Self) -> Self {
        Self {
            ttl_ms: least(self.ttl_ms, operator.ttl_ms),
            expires_ms: least(self.expires_ms, operator.expires_ms),
            length_max: least(self.length_max, operator.length_max),
            bytes_max: least(self.bytes_max, operator.bytes_max),
            delivery_limit: least(self.delivery_limit, operator.delivery_limit),
            overflow: operator.overflow.or(self.overflow),
            dead_letter_exchange: (operator.dead_letter_exchange.clone())
                .or_else(|| self.dead_letter_exchange.clone()),
            dead_letter_key: (operator.dead_letter_key.clone()).or_else(|| self.dead_letter_key.clone()),
        }
    }

    /// Returns the settings that a queue without messages of its own can have.
    #[must_use]
    pub fn without_messages(&self) -> Self {
        Self {
            length_max: None,
            bytes_max: None,
            overflow: None,
            ..self.clone()
        }
    }
}

impl QueueSettings {
    /// Returns these settings of a declaration under a policy: the smaller of two numbers, and the declared
    /// choice otherwise.
    #[must_use]
    pub fn under(&self, policy: &PolicySettings) -> Self {
        let mut settings = self.bounded_by(policy);
        if self.has_default_delivery_limit
            && let Some(limit) = policy.delivery_limit
        {
            settings.delivery_limit = limit.number();
        }
        if self.overflow != Overflow::default() {
            settings.overflow = self.overflow;
        }
        let exchange = self.dead_letter.as_ref().map(|to| &to.exchange);
        let declared_key = self.dead_letter.as_ref().and_then(|to| to.routing_key.as_ref());
        let exchange = exchange.or(policy.dead_letter_exchange.as_ref());
        settings.dead_letter = exchange.map(|exchange| DeadLetter {
            exchange: exchange.clone(),
            routing_key: declared_key.or(policy.dead_letter_key.as_ref()).cloned(),
        });
        settings
    }

    /// Returns these settings with the bounds of a policy.
    #[must_use]
    pub fn bounded_by(&self, policy: &PolicySettings) -> Self {
        let mut settings = Self {
            ttl_ms: least(self.ttl_ms, policy.ttl_ms),
            expires_ms: least(self.expires_ms, policy.expires_ms),
            length_max: least(self.length_max, policy.length_max),
            bytes_max: least(self.bytes_max, policy.bytes_max),
            overflow: policy.overflow.unwrap_or(self.overflow),
            ..self.clone()
        };
        let limit = least(
            Some(DeliveryLimit::of(self.delivery_limit)),
            policy.delivery_limit,
        );
        settings.delivery_limit = limit.and_then(DeliveryLimit::number);
        if settings.two_priorities && settings.overflow == Overflow::RejectPublishDeadLetter {
            // As for its declaration: such a queue dead-letters nothing that it refuses.
            settings.overflow = Overflow::DropHead;
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_declaration_wins_over_choices_of_a_policy_and_numbers_are_the_smaller_ones() {
        let policy = PolicySettings {
            ttl_ms: Some(10),
            length_max: Some(5),
            overflow: Some(Overflow::RejectPublish),
            dead_letter_exchange: Some("dead".into()),
            dead_letter_key: Some("key".into()),
            ..PolicySettings::default()
        };
        let plain = QueueSettings::default().under(&policy);
        let to_dead = |exchange: &str, key: &str| {
            Some(DeadLetter {
                exchange: exchange.into(),
                routing_key: Some(key.into()),
            })
        };
        let expected = QueueSettings {
            ttl_ms: Some(10),
            length_max: Some(5),
            overflow: Overflow::RejectPublish,
            dead_letter: to_dead("dead", "key"),
            ..QueueSettings::default()
        };
        assert_eq!(plain, expected);
        let declared = QueueSettings {
            ttl_ms: Some(3),
            length_max: Some(7),
            overflow: Overflow::RejectPublishDeadLetter,
            dead_letter: to_dead("own", "own"),
            ..QueueSettings::default()
        };
        let expected = QueueSettings {
            length_max: Some(5),
            ..declared.clone()
        };
        assert_eq!(declared.under(&policy), expected);
        let without_key = QueueSettings {
            dead_letter: Some(DeadLetter {
                exchange: "own".into(),
                routing_key: None,
            }),
            ..QueueSettings::default()
        };
        assert_eq!(without_key.under(&policy).dead_letter, to_dead("own", "key"));
    }

    #[test]
    fn a_limit_of_deliveries_by_default_gives_way_and_a_declared_one_bounds() {
        let limit = |limit| PolicySettings {
            delivery_limit: Some(limit),
            ..PolicySettings::default()
        };
        let queue = |count, has_default_delivery_limit| QueueSettings {
            delivery_limit: count,
            has_default_delivery_limit,
            ..QueueSettings::default()
        };
        let (fifty, none) = (limit(DeliveryLimit::Returns(50)), limit(DeliveryLimit::None));
        for (declared, is_default, by_fifty, by_none) in [
            (Some(20), true, Some(50), None),
            (Some(20), false, Some(20), Some(20)),
            (Some(60), false, Some(50), Some(60)),
            (None, false, Some(50), None),
        ] {
            let queue = queue(declared, is_default);
            assert_eq!(queue.under(&fifty).delivery_limit, by_fifty, "{declared:?}");
            assert_eq!(queue.under(&none).delivery_limit, by_none, "{declared:?}");
        }
    }

    #[test]
    fn an_operator_bounds_the_policies_of_others_and_chooses_before_them() {
        let user = PolicySettings {
            ttl_ms: Some(10),
            bytes_max: Some(100),
            overflow: Some(Overflow::DropHead),
            dead_letter_key: Some("key".into()),
            ..PolicySettings::default()
        };
        let operator = PolicySettings {
            ttl_ms: Some(20),
            bytes_max: Some(50),
            expires_ms: Some(1),
            overflow: Some(Overflow::RejectPublish),
            ..PolicySettings::default()
        };
        let expected = PolicySettings {
            ttl_ms: Some(10),
            bytes_max: Some(50),
            expires_ms: Some(1),
            overflow: Some(Overflow::RejectPublish),
            ..user.clone()
        };
        assert_eq!(user.within(&operator), expected);
    }
}
