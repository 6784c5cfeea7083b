//! A place in all partitions of a topic, as opaque text: the end of a page, or the id of an event.
//!
//! ```text
//! u32 of the topic's id, then for each partition its offset, each number in 7-bit groups, low ones first
//! ```

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use stafett_http::Problem;
use stafett_topics::{Topic, TopicId};

/// Bound on the partitions of a cursor, whose text has to fit into a request line.
pub(super) const PARTITIONS_MAX: usize = 1000;

/// Encodes the offsets of all partitions.
pub(super) fn text(topic: &Topic, offsets: impl Iterator<Item = u64>) -> String {
    let mut bytes = tag(topic.id).to_vec();
    for mut offset in offsets {
        while offset >= 0x80 {
            bytes.push(u8::try_from(offset & 0x7f).unwrap_or(0) | 0x80);
            offset >>= 7;
        }
        bytes.push(u8::try_from(offset).unwrap_or(0));
    }
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes a cursor of this topic.
pub(super) fn read(topic: &Topic, text: &str) -> Result<Vec<u64>, Problem> {
    let offsets = URL_SAFE_NO_PAD.decode(text).ok().and_then(|bytes| {
        let bytes = bytes.strip_prefix(tag(topic.id).as_slice())?;
        offsets(bytes)
    });
    let offsets = offsets.filter(|offsets| offsets.len() <= topic.partitions() as usize);
    offsets.ok_or_else(|| {
        let why = format!(
            "{text:?} is no place in the topic {:?}, as an answer gave it",
            topic.name
        );
        Problem::bad_request(why)
    })
}

fn offsets(mut bytes: &[u8]) -> Option<Vec<u64>> {
    let mut offsets = Vec::new();
    while !bytes.is_empty() {
        let (mut offset, mut shift) = (0_u64, 0);
        loop {
            let (byte, rest) = bytes.split_first()?;
            bytes = rest;
            let group = u64::from(byte & 0x7f);
            if shift > 63 || group.checked_shl(shift)? >> shift != group {
                return None;
            }
            offset |= group << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                break;
            }
        }
        offsets.push(offset);
    }
    (offsets.len() <= PARTITIONS_MAX).then_some(offsets)
}

fn tag(id: TopicId) -> [u8; 4] {
    let bytes = id.0.to_be_bytes();
    [bytes[0], bytes[5], bytes[10], bytes[15]]
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use stafett_model::LogId;

    use super::*;

    fn topic(id: u128) -> Topic {
        Topic::new(TopicId(id), "t".into(), LogId(1), 4, Arc::default())
    }

    #[test]
    fn places_read_back_and_others_are_refused() {
        let topic = topic(7);
        let offsets = [0, 127, 128, u64::MAX];
        let written = text(&topic, offsets.into_iter());
        assert_eq!(read(&topic, &written), Ok(offsets.to_vec()));
        assert!(read(&self::topic(8), &written).is_err());
        assert!(read(&topic, &text(&topic, [0; 5].into_iter())).is_err());
        let raw = |bytes: &[u8]| URL_SAFE_NO_PAD.encode([&tag(topic.id), bytes].concat());
        for bad in [
            String::new(),
            "?".to_owned(),
            raw(&[0x80]),
            raw(&[0xff; 9]),
            raw(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]),
            raw(&[0x80; 40]),
        ] {
            assert_eq!(
                read(&topic, &bad).unwrap_err().code.word(),
                "bad_request",
                "{bad}"
            );
        }
    }
}
