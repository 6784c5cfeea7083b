//! Users, their tags and verifiers.
//!
//! ```text
//! stored key    name
//! stored value  u8 version (1), verifiers, u32 number of tags, text tag ...
//! ```

use stafett_model::codec::{get, get_text, put_text};

use crate::verifier::Verifiers;

/// Tag of users that may do everything; no rule forbids them anything.
pub const SUPERUSER: &str = "superuser";
/// Tag of users that may operate the cluster, and manage namespaces, users and rules.
pub const ADMINISTRATOR: &str = "administrator";
/// Tag of users that see everything but content.
pub const MONITORING: &str = "monitoring";
/// Tag of users that make policies of queues in the virtual hosts that they may enter.
pub const POLICYMAKER: &str = "policymaker";
/// Tags with which a user may use the management API.
pub const MANAGEMENT_TAGS: [&str; 5] = [SUPERUSER, ADMINISTRATOR, MONITORING, POLICYMAKER, "management"];

/// Format of stored values.
const VERSION: u8 = 1;
/// Bytes of the longest name of a user or tag.
const NAME_BYTES_MAX: usize = 255;
/// Tags of one user.
const TAGS_MAX: usize = 64;

/// A name of a user or tag that is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error("the name of a user or tag has 1 to {NAME_BYTES_MAX} bytes and no control characters")]
    Name,
    #[error("a user has at most {TAGS_MAX} tags")]
    ManyTags,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    pub name: Box<str>,
    pub verifiers: Verifiers,
    /// Roles, sorted.
    tags: Box<[Box<str>]>,
}

impl User {
    pub fn new(name: &str, verifiers: Verifiers, tags: &[&str]) -> Result<Self, BadName> {
        let is_name = |name: &str| {
            !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.chars().any(char::is_control)
        };
        if !is_name(name) || !tags.iter().all(|tag| is_name(tag)) {
            return Err(BadName::Name);
        }
        let mut tags: Vec<Box<str>> = tags.iter().map(|tag| (*tag).into()).collect();
        tags.sort();
        tags.dedup();
        if tags.len() > TAGS_MAX {
            return Err(BadName::ManyTags);
        }
        Ok(Self {
            name: name.into(),
            verifiers,
            tags: tags.into(),
        })
    }

    pub fn tags(&self) -> impl Iterator<Item = &str> {
        self.tags.iter().map(|tag| &**tag)
    }

    #[must_use]
    pub fn has_tag(&self, tag: &str) -> bool {
        self.tags().any(|known| known == tag)
    }

    /// Returns true if it may manage users and rules.
    #[must_use]
    pub fn is_administrator(&self) -> bool {
        self.has_tag(SUPERUSER) || self.has_tag(ADMINISTRATOR)
    }

    #[must_use]
    pub fn value(&self) -> Vec<u8> {
        let mut value = vec![VERSION];
        self.verifiers.encode(&mut value);
        let count = u32::try_from(self.tags.len()).unwrap_or_default();
        value.extend_from_slice(&count.to_le_bytes());
        for tag in self.tags() {
            put_text(tag, &mut value);
        }
        value
    }

    /// Reads a stored user. `None` if its format is unknown.
    #[must_use]
    pub fn decode(key: &[u8], mut value: &[u8]) -> Option<Self> {
        let rest = &mut value;
        let [VERSION] = get(rest)? else { return None };
        let verifiers = Verifiers::decode(rest)?;
        let count = u32::from_le_bytes(get(rest)?);
        let tags: Option<Vec<&str>> = (0..count).map(|_| get_text(rest)).collect();
        let user = Self::new(std::str::from_utf8(key).ok()?, verifiers, &tags?).ok()?;
        rest.is_empty().then_some(user)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_survives_its_storage() {
        let verifiers = Verifiers::of_password(b"secret", b"salt");
        let user = User::new("ännchen", verifiers, &["b", SUPERUSER, "b"]).unwrap();
        assert_eq!(user.tags().collect::<Vec<_>>(), ["b", SUPERUSER]);
        assert_eq!(
            User::decode("ännchen".as_bytes(), &user.value()),
            Some(user.clone())
        );
        let value = user.value();
        for end in 0..value.len() {
            assert_eq!(User::decode(b"a", &value[..end]), None);
        }
    }

    #[test]
    fn names_have_bounds_and_no_control_characters() {
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "a\0b", "a\nb", &long] {
            assert_eq!(User::new(name, Verifiers::default(), &[]), Err(BadName::Name));
            assert_eq!(User::new("a", Verifiers::default(), &[name]), Err(BadName::Name));
        }
        let tags: Vec<String> = (0..=TAGS_MAX).map(|number| number.to_string()).collect();
        let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
        assert_eq!(
            User::new("a", Verifiers::default(), &tags),
            Err(BadName::ManyTags)
        );
    }
}
