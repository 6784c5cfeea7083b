//! One policy, and its stored format.
//!
//! ```text
//! stored key    u8 (0 user's, 1 operator's), text namespace, text name
//! stored value  u8 version (1), i32 priority, u8 scope (1 plain queues, 2 those with two priorities), text pattern,
//!               settings in the form of `stafett_queue`, then the definition in the format of the front end
//! ```

use bytes::Bytes;
use bytestring::ByteString;
use stafett_access::{BadPattern, Pattern};
use stafett_model::codec::{get, get_text, put_text};
use stafett_model::{NAME_BYTES_MAX, Namespace};
use stafett_queue::{PolicySettings, QueueSettings};

/// Format of stored values.
const VERSION: u8 = 1;
/// Bound on the bytes of a front end's definition.
const DEFINITION_BYTES_MAX: usize = 64 << 10;
const PLAIN: u8 = 1;
const TWO_PRIORITIES: u8 = 2;

/// Maker of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PolicyKind {
    User,
    /// It bounds the choices of others.
    Operator,
}

impl PolicyKind {
    pub const ALL: [Self; 2] = [Self::User, Self::Operator];
}

/// Kinds of queues that a policy is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PolicyScope {
    pub plain: bool,
    /// Queues with two priorities.
    pub two_priorities: bool,
}

impl PolicyScope {
    pub const ALL: Self = Self {
        plain: true,
        two_priorities: true,
    };

    pub(super) fn has(self, declared: &QueueSettings) -> bool {
        if declared.two_priorities {
            self.two_priorities
        } else {
            self.plain
        }
    }
}

/// Policy that is to be made.
#[derive(Debug, Clone)]
pub struct NewPolicy {
    pub name: ByteString,
    /// Regular expression that finds a place in the name of a queue.
    pub pattern: ByteString,
    /// Of several policies that match, the one with the highest priority is in force.
    pub priority: i32,
    pub scope: PolicyScope,
    pub settings: PolicySettings,
    /// The policy in the format of the front end that made it, opaque to the core; empty without one.
    pub definition: Bytes,
}

/// A policy that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadPolicy {
    #[error("a policy has a name of 1 to {NAME_BYTES_MAX} bytes")]
    Name,
    #[error(transparent)]
    Pattern(#[from] BadPattern),
    #[error("the definition of a policy has at most {DEFINITION_BYTES_MAX} bytes")]
    Definition,
}

/// A policy.
#[derive(Debug)]
pub struct Policy {
    pub new: NewPolicy,
    pattern: Pattern,
}

impl Policy {
    pub(super) fn new(new: NewPolicy) -> Result<Self, BadPolicy> {
        if new.name.is_empty() || new.name.len() > NAME_BYTES_MAX {
            return Err(BadPolicy::Name);
        }
        if new.definition.len() > DEFINITION_BYTES_MAX {
            return Err(BadPolicy::Definition);
        }
        // An empty pattern matches everywhere, unlike one of a permission.
        let pattern = if new.pattern.is_empty() {
            ".*"
        } else {
            &*new.pattern
        };
        let pattern = Pattern::new(pattern)?;
        Ok(Self { new, pattern })
    }

    pub(super) fn matches(&self, name: &str, declared: &QueueSettings) -> bool {
        self.new.scope.has(declared) && self.pattern.matches(name)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let NewPolicy {
            pattern,
            priority,
            scope,
            settings,
            definition,
            ..
        } = &self.new;
        let flag = |set, flag| if set { flag } else { 0 };
        let mut value = vec![VERSION];
        value.extend(priority.to_le_bytes());
        value.push(flag(scope.plain, PLAIN) | flag(scope.two_priorities, TWO_PRIORITIES));
        put_text(pattern, &mut value);
        settings.encode(&mut value);
        value.extend_from_slice(definition);
        value
    }

    /// Reads a stored policy. `None` if its format is unknown.
    pub(super) fn decode(name: &str, mut value: &[u8]) -> Option<Self> {
        let rest = &mut value;
        let [VERSION] = get(rest)? else { return None };
        let priority = i32::from_le_bytes(get(rest)?);
        let [scope] = get(rest)?;
        let pattern = get_text(rest)?.into();
        let settings = PolicySettings::decode(rest)?;
        let new = NewPolicy {
            name: name.into(),
            pattern,
            priority,
            scope: PolicyScope {
                plain: scope & PLAIN != 0,
                two_priorities: scope & TWO_PRIORITIES != 0,
            },
            settings,
            definition: Bytes::copy_from_slice(rest),
        };
        Self::new(new).ok()
    }
}

pub(super) fn encode_key(kind: PolicyKind, namespace: &Namespace, name: &str) -> Vec<u8> {
    let mut key = vec![kind as u8];
    put_text(namespace.as_str(), &mut key);
    put_text(name, &mut key);
    key
}

pub(super) fn decode_key(mut key: &[u8]) -> Option<(PolicyKind, Namespace, ByteString)> {
    let rest = &mut key;
    let [number] = get(rest)?;
    let kind = PolicyKind::ALL.into_iter().find(|kind| *kind as u8 == number)?;
    let namespace = Namespace::new(get_text(rest)?);
    let name = get_text(rest)?.into();
    rest.is_empty().then_some((kind, namespace, name))
}

#[cfg(test)]
mod tests {
    use stafett_queue::{DeliveryLimit, Overflow};

    use super::*;

    fn full() -> NewPolicy {
        NewPolicy {
            name: "p".into(),
            pattern: "^orders".into(),
            priority: -7,
            scope: PolicyScope {
                plain: false,
                two_priorities: true,
            },
            settings: PolicySettings {
                ttl_ms: Some(0),
                expires_ms: Some(u64::MAX),
                length_max: Some(1),
                bytes_max: Some(300),
                overflow: Some(Overflow::DropHead),
                dead_letter_exchange: Some("".into()),
                dead_letter_key: Some("dead".into()),
                delivery_limit: Some(DeliveryLimit::None),
            },
            definition: Bytes::from_static(b"{}"),
        }
    }

    #[test]
    fn a_policy_survives_its_storage() {
        let returns = NewPolicy {
            settings: PolicySettings {
                delivery_limit: Some(DeliveryLimit::Returns(3)),
                ..PolicySettings::default()
            },
            scope: PolicyScope::ALL,
            definition: Bytes::new(),
            ..full()
        };
        for new in [full(), returns] {
            let stored = Policy::new(new.clone()).unwrap().encode();
            let read = Policy::decode("p", &stored).unwrap().new;
            assert_eq!(format!("{read:?}"), format!("{new:?}"));
            let body = stored.len() - new.definition.len();
            for end in 0..body {
                assert!(Policy::decode("p", &stored[..end]).is_none(), "{end}");
            }
        }
        let key = encode_key(PolicyKind::Operator, &Namespace::new("shop"), "p");
        let expected = (PolicyKind::Operator, Namespace::new("shop"), "p".into());
        assert_eq!(decode_key(&key), Some(expected));
        for end in 0..key.len() {
            assert_eq!(decode_key(&key[..end]), None, "{end}");
        }
    }

    #[test]
    fn policies_without_a_name_or_with_a_bad_pattern_are_refused() {
        let with = |change: fn(&mut NewPolicy)| {
            let mut new = full();
            change(&mut new);
            Policy::new(new).map(drop)
        };
        assert_eq!(with(|new| new.name = "".into()), Err(BadPolicy::Name));
        assert_eq!(
            with(|new| new.name = "x".repeat(256).into()),
            Err(BadPolicy::Name)
        );
        let bad = with(|new| new.pattern = "(".into());
        assert!(matches!(bad, Err(BadPolicy::Pattern(_))));
        let large = with(|new| new.definition = vec![0; DEFINITION_BYTES_MAX + 1].into());
        assert_eq!(large, Err(BadPolicy::Definition));
    }

    #[test]
    fn a_policy_is_for_names_with_its_pattern_and_for_its_kinds_of_queues() {
        let two = QueueSettings {
            two_priorities: true,
            ..QueueSettings::default()
        };
        let plain = QueueSettings::default();
        let policy = Policy::new(full()).unwrap();
        assert!(policy.matches("orders.eu", &two) && !policy.matches("orders.eu", &plain));
        assert!(!policy.matches("an order", &two));
        let all = NewPolicy {
            pattern: "".into(),
            scope: PolicyScope::ALL,
            ..full()
        };
        let all = Policy::new(all).unwrap();
        assert!(all.matches("x", &plain) && all.matches("", &two));
    }
}
