//! A copy of users, tokens, rules, quotas, limits and permissions, for another broker of the same cluster.
//!
//! ```text
//! row, row, …: u8 table | u32 bytes of the key | key | u32 bytes of the value | value
//! ```
//!
//! Tables are those of the state space, keys and values the stored ones. Integers are big-endian.

use std::sync::atomic::Ordering;

use stafett_access::{
    Change, Directory, Rule, Token, TopicPermission, User, decode_limits, decode_quota, encode_limits,
    encode_rates,
};

use super::AccessControl;

/// Bytes that are no copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the copy of users and rights is malformed")]
pub struct BadCopy;

impl AccessControl {
    /// Returns a copy, and a generation of the directory that is in it as a whole.
    pub fn copy(&self) -> (u64, Vec<u8>) {
        let generation = self.directory.generation();
        (generation, written(&self.directory))
    }

    /// Replaces everything by a copy. Nothing is stored: it is that of another broker. Changes are refused
    /// from now on.
    pub fn follow(&self, copy: &[u8]) -> Result<(), BadCopy> {
        self.is_copy.store(true, Ordering::Release);
        self.directory.replace(read(copy).ok_or(BadCopy)?);
        self.changes.send_replace(self.directory.generation());
        Ok(())
    }
}

fn written(directory: &Directory) -> Vec<u8> {
    let mut rows = Rows::default();
    for user in directory.users() {
        rows.put(0, user.name.as_bytes(), &user.value());
    }
    for token in directory.tokens() {
        rows.put(1, &token.hash.0, &token.value());
    }
    directory.with_rules(|rules| {
        for rule in rules.iter() {
            rows.put(2, &rule.key(), &rule.value());
        }
    });
    directory.with_quotas(|quotas| {
        for (entity, rates) in quotas.iter() {
            rows.put(3, &entity.key(), &encode_rates(rates));
        }
    });
    for (of, limits) in directory.all_limits() {
        rows.put(4, &of.key(), &encode_limits(&limits));
    }
    for permission in directory.topic_permissions() {
        rows.put(5, &permission.key(), &permission.value());
    }
    rows.0
}

#[derive(Default)]
struct Rows(Vec<u8>);

impl Rows {
    fn put(&mut self, table: u8, key: &[u8], value: &[u8]) {
        self.0.push(table);
        for text in [key, value] {
            let bytes = u32::try_from(text.len()).unwrap_or(u32::MAX);
            self.0.extend(bytes.to_be_bytes());
            self.0.extend(text);
        }
    }
}

fn read(mut copy: &[u8]) -> Option<Vec<Change>> {
    let mut changes = Vec::new();
    while let Some((table, rest)) = copy.split_first() {
        let (key, rest) = text(rest)?;
        let (value, rest) = text(rest)?;
        changes.push(change(*table, key, value)?);
        copy = rest;
    }
    Some(changes)
}

fn text(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

fn change(table: u8, key: &[u8], value: &[u8]) -> Option<Change> {
    match table {
        0 => User::decode(key, value).map(Change::PutUser),
        1 => Token::decode(key, value).map(Change::PutToken),
        2 => Rule::decode(key, value).map(Change::SetRule),
        3 => decode_quota(key, value).map(|(entity, rates)| Change::SetQuota(entity, rates)),
        4 => decode_limits(key, value).map(|(of, limits)| Change::SetLimits(of, limits)),
        5 => TopicPermission::decode(key, value).map(Change::PutTopicPermission),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use stafett_access::{Entity, Limit, Limited, Part, Rate, Verifiers};

    use super::*;

    #[test]
    fn a_copy_has_everything_and_replaces_everything() {
        let one = Directory::default();
        let user = |name| User::new(name, Verifiers::default(), &["administrator"]).unwrap();
        let entity = Entity {
            user: Some(Part::Named("anna".into())),
            client: None,
        };
        let limits = Limited::Namespace("shop".into());
        one.apply([
            Change::PutUser(user("anna")),
            Change::SetQuota(entity, [(Rate::Produced, 1000.0)].into()),
            Change::SetLimits(limits.clone(), [(Limit::Queues, 3)].into()),
        ]);
        let other = Directory::default();
        other.apply([Change::PutUser(user("bert"))]);
        other.replace(read(&written(&one)).unwrap());
        assert!(other.user("bert").is_none());
        assert!(other.user("anna").is_some() && !other.is_open() && other.has_quotas());
        assert_eq!(other.limit(&limits, Limit::Queues), Some(3));
        assert_eq!(written(&other), written(&one));
        other.replace(Vec::new());
        assert!(other.is_open(), "without a user it is open");
    }

    #[test]
    fn bytes_that_are_no_copy_are_refused() {
        for bytes in [
            &[9, 0, 0, 0, 0, 0, 0, 0, 0][..],
            &[0],
            &[0, 0, 0, 0, 9, 1],
            &[0, 255, 255, 255, 255],
        ] {
            assert_eq!(read(bytes), None, "{bytes:?}");
        }
        assert_eq!(read(&[]), Some(Vec::new()));
    }
}
