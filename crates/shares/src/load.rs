//! Loading of places, and their stored form.
//!
//! ```text
//! key:    u64 id, big-endian
//! value:  u8 version = 1, u128 topic id, little-endian, then the name of the group
//! ```

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use stafett_journal::{Append, Frame, StateItem, StateUnreadable, StateWait};
use stafett_store::spaces;
use stafett_topics::TopicId;

use super::place::Place;
use super::places::Shares;

const VERSION: u8 = 1;
/// Bound on the frames stored together.
const FRAMES_MAX: usize = 500;

pub(super) fn encode(place: &Place) -> Bytes {
    let mut out = vec![VERSION];
    out.extend_from_slice(&place.topic.0.to_le_bytes());
    out.extend_from_slice(place.group.as_bytes());
    out.into()
}

fn decode(value: &[u8]) -> Option<(TopicId, &str)> {
    let (&[VERSION], rest) = value.split_first_chunk::<1>()? else {
        return None;
    };
    let (topic, group) = rest.split_first_chunk::<16>()?;
    Some((
        TopicId(u128::from_le_bytes(*topic)),
        std::str::from_utf8(group).ok()?,
    ))
}

impl Shares {
    /// Loads the places. Those in topics that no longer exist are deleted.
    pub(super) fn load(self: &Arc<Self>) -> Result<(), StateUnreadable> {
        let mut found: HashMap<u64, Arc<Place>> = HashMap::new();
        let mut gone: Vec<Frame> = Vec::new();
        let mut last_id = 0;
        spaces::SHARES.load_values(&*self.journal, |key, value| {
            let id = u64::from_be_bytes(key.try_into().ok()?);
            let (topic, group) = decode(value)?;
            last_id = last_id.max(id);
            match self.topics.with_id(topic) {
                Some(topic) => {
                    found.insert(id, Place::new(id, group.into(), &topic, self));
                }
                None => gone.push(spaces::SHARES.delete(key.to_vec())),
            }
            Some(())
        })?;
        let mut left_over: Vec<Bytes> = Vec::new();
        spaces::SHARE_DELIVERIES.load(&*self.journal, |item| {
            let (StateItem::Value { key, .. } | StateItem::Delta { key, .. }) = item;
            let id = key.try_into().map(u64::from_be_bytes).ok()?;
            last_id = last_id.max(id);
            if let Some(place) = found.get(&id) {
                return place.dispatcher.restore(item);
            }
            left_over.push(Bytes::copy_from_slice(key));
            Some(())
        })?;
        left_over.dedup();
        gone.extend(
            left_over
                .into_iter()
                .map(|key| spaces::SHARE_DELIVERIES.delete(key)),
        );
        let mut table = self.table.lock();
        table.last_id = last_id;
        for place in found.into_values() {
            place.dispatcher.open(&self.context);
            table.insert(&place);
        }
        drop(table);
        let mut gone = gone.into_iter().peekable();
        while gone.peek().is_some() {
            let append = Append::state(gone.by_ref().take(FRAMES_MAX), StateWait::Written);
            drop(self.journal.append(vec![append]));
        }
        Ok(())
    }
}
