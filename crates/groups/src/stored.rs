//! Stored format of groups and their commits, as items of keyed state.
//!
//! ```text
//! space 3, commits: key    name of the group, topic id (16, big-endian), partition (4, big-endian)
//!                   value  u8 version = 2, i64 offset, i32 leader epoch, i64 ms since 1970, u64 order of its
//!                          request, u8 has text, text; version 1 has no order, which counts as 0
//! space 4, groups:  key    name of the group
//!                   value  u8 version = 1, i64 empty since (ms since 1970), u8 kind (1 classic, 2 consumer,
//!                          3 share), its state
//!                   delta  as defined by the kind
//! ```
//!
//! Numbers of values are little-endian.

use bytes::Bytes;
use stafett_topics::TopicId;

use super::commits::CommittedOffset;
use super::group::Group;

pub(super) const CLASSIC: u8 = 1;
pub(super) const CONSUMER: u8 = 2;
pub(super) const SHARE: u8 = 3;

const VERSION: u8 = 1;
/// Version of the commits.
const COMMIT_VERSION: u8 = 2;
/// Bytes behind the group's name in the key of a commit.
const SUFFIX: usize = 20;

pub(super) fn commit_key(group: &str, topic: TopicId, partition: u32) -> Bytes {
    let mut key = Vec::with_capacity(group.len() + SUFFIX);
    key.extend_from_slice(group.as_bytes());
    key.extend_from_slice(&topic.0.to_be_bytes());
    key.extend_from_slice(&partition.to_be_bytes());
    key.into()
}

pub(super) fn read_commit_key(key: &[u8]) -> Option<(&str, TopicId, u32)> {
    let (group, suffix) = key.split_at_checked(key.len().checked_sub(SUFFIX)?)?;
    let (topic, partition) = suffix.split_first_chunk::<16>()?;
    let partition = u32::from_be_bytes(partition.try_into().ok()?);
    let group = std::str::from_utf8(group).ok()?;
    Some((group, TopicId(u128::from_be_bytes(*topic)), partition))
}

pub(super) fn encode_commit(committed: &CommittedOffset) -> Bytes {
    let text = committed.text.as_deref();
    let mut out = Vec::with_capacity(30 + text.map_or(0, str::len));
    out.push(COMMIT_VERSION);
    out.extend_from_slice(&committed.offset.to_le_bytes());
    out.extend_from_slice(&committed.leader_epoch.to_le_bytes());
    out.extend_from_slice(&committed.at.to_le_bytes());
    out.extend_from_slice(&committed.order.to_le_bytes());
    out.push(text.is_some().into());
    out.extend_from_slice(text.unwrap_or_default().as_bytes());
    out.into()
}

pub(super) fn decode_commit(bytes: &[u8]) -> Option<CommittedOffset> {
    let (&[version], rest) = bytes.split_first_chunk::<1>()?;
    if !(1..=COMMIT_VERSION).contains(&version) {
        return None;
    }
    let (offset, rest) = rest.split_first_chunk()?;
    let (leader_epoch, rest) = rest.split_first_chunk()?;
    let (at, rest) = rest.split_first_chunk()?;
    let (order, rest) = match version {
        1 => (&[0; 8], rest),
        _ => rest.split_first_chunk()?,
    };
    let (&[has_text], rest) = rest.split_first_chunk::<1>()?;
    let text = std::str::from_utf8(rest).ok()?;
    if has_text > 1 || (has_text == 0 && !text.is_empty()) {
        return None;
    }
    Some(CommittedOffset {
        offset: i64::from_le_bytes(*offset),
        leader_epoch: i32::from_le_bytes(*leader_epoch),
        at: i64::from_le_bytes(*at),
        order: u64::from_le_bytes(*order),
        text: (has_text == 1).then(|| text.into()),
    })
}

pub(super) fn encode_group(group: &Group) -> Bytes {
    let mut out = vec![VERSION];
    out.extend_from_slice(&group.empty_since.to_le_bytes());
    group.kind.encode(&mut out);
    out.into()
}

/// Decodes a group: since when it has been empty, and the state of its kind.
pub(super) fn decode_group(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (&[VERSION], rest) = bytes.split_first_chunk::<1>()? else {
        return None;
    };
    let (empty_since, rest) = rest.split_first_chunk()?;
    Some((i64::from_le_bytes(*empty_since), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_reads_back_and_cut_ones_do_not() {
        for text in [None, Some(""), Some("käse")] {
            let committed = CommittedOffset {
                offset: 7,
                leader_epoch: -1,
                at: 1_700_000_000_000,
                order: 11,
                text: text.map(Into::into),
            };
            let bytes = encode_commit(&committed);
            for cut in 0..30 {
                assert_eq!(decode_commit(&bytes[..cut]), None, "cut at {cut}");
            }
            let before = [&[1], &bytes[1..21], &bytes[29..]].concat();
            let read = decode_commit(&before).unwrap();
            assert_eq!((read.order, &read.text), (0, &committed.text), "of version 1");
            assert_eq!(decode_commit(&bytes), Some(committed));
        }
    }

    #[test]
    fn a_key_names_group_topic_and_partition() {
        let key = commit_key("group ä", TopicId(77), 5);
        assert_eq!(read_commit_key(&key), Some(("group ä", TopicId(77), 5)));
        assert_eq!(read_commit_key(&key[..19]), None);
    }
}
