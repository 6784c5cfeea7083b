//! Definitions of sinks, kept for the programs that run them. This crate does not read them.
//!
//! ```text
//! space 17, key name:  format u8 (0) · flags u8 (1: rests) · definition (JSON text, to the end)
//! ```

use std::collections::BTreeMap;
use std::sync::Arc;

use stafett_journal::{Journal, StateUnreadable};
use stafett_model::SharedLock;
use stafett_store::{Changing, NotStored, spaces, store_synced};
use tokio::sync::{Semaphore, watch};

use crate::broker::Broker;

/// Sinks of a broker, at most.
pub const SINKS_MAX: usize = 10_000;
const FORMAT: u8 = 0;
const RESTS: u8 = 1;

/// A sink as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSink {
    /// JSON text.
    pub definition: Box<str>,
    /// True while the operator has it rest.
    pub rests: bool,
}

/// Reason why a definition is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SinkError {
    #[error("there is no sink of this name")]
    NoSuchSink,
    #[error("there are {SINKS_MAX} sinks already")]
    TooMany,
    #[error(transparent)]
    NotStored(#[from] NotStored),
}

/// All sinks.
#[derive(Debug)]
pub struct Sinks {
    set: SharedLock<BTreeMap<Box<str>, Arc<StoredSink>>>,
    /// Count of changes, for those that wait for one.
    changes: watch::Sender<u64>,
    /// One permit, held while a definition is changed.
    turn: Semaphore,
}

impl StoredSink {
    fn encode(&self) -> Vec<u8> {
        let flags = if self.rests { RESTS } else { 0 };
        [&[FORMAT, flags], self.definition.as_bytes()].concat()
    }

    fn decode(value: &[u8]) -> Option<Self> {
        let (&FORMAT, rest) = value.split_first()? else {
            return None;
        };
        let (flags, definition) = rest.split_first()?;
        Some(Self {
            definition: std::str::from_utf8(definition).ok()?.into(),
            rests: flags & RESTS != 0,
        })
    }
}

impl Sinks {
    pub(crate) fn load(journal: &dyn Journal) -> Result<Self, StateUnreadable> {
        let mut set = BTreeMap::new();
        spaces::SINKS.load_values(journal, |key, value| {
            let name = std::str::from_utf8(key).ok()?;
            set.insert(name.into(), Arc::new(StoredSink::decode(value)?));
            Some(())
        })?;
        Ok(Self {
            set: SharedLock::new(set),
            changes: watch::Sender::new(0),
            turn: Semaphore::new(1),
        })
    }

    /// Returns all sinks by name.
    pub fn all(&self) -> BTreeMap<Box<str>, Arc<StoredSink>> {
        self.set.read().clone()
    }

    pub fn named(&self, name: &str) -> Option<Arc<StoredSink>> {
        self.set.read().get(name).cloned()
    }

    /// Returns a receiver that is told of changes.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl Broker {
    /// Returns the definitions of sinks.
    pub fn sinks(&self) -> &Sinks {
        &self.sinks
    }

    /// Changes a sink: `edit` has it as it is, and returns it as it shall be. Durable when the change has
    /// ended. Returns the sink before.
    pub fn edit_sink(
        self: &Arc<Self>,
        name: &str,
        edit: impl FnOnce(Option<&StoredSink>) -> Result<Option<StoredSink>, SinkError> + Send + 'static,
    ) -> Changing<Option<Arc<StoredSink>>, SinkError> {
        let (broker, name) = (Arc::clone(self), Box::<str>::from(name));
        self.catalog.changes().begin(async move {
            let sinks = &broker.sinks;
            let turn = sinks.turn.acquire().await;
            let _turn = turn.map_err(|_| NotStored::Unknown)?;
            let before = sinks.named(&name);
            let now = edit(before.as_deref())?;
            if now.as_ref() == before.as_deref() {
                return Ok(before);
            }
            if before.is_none() && sinks.set.read().len() >= SINKS_MAX {
                return Err(SinkError::TooMany);
            }
            let key = name.as_bytes().to_vec();
            let frame = match &now {
                Some(now) => spaces::SINKS.put(key, now.encode()),
                None => spaces::SINKS.delete(key),
            };
            store_synced(&*broker.journal, [frame]).await?;
            {
                let mut set = sinks.set.write();
                match now {
                    Some(now) => set.insert(name, Arc::new(now)),
                    None => set.remove(&name),
                };
            }
            sinks.changes.send_modify(|count| *count += 1);
            Ok(before)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_read_as_they_were_written() {
        for rests in [false, true] {
            let sink = StoredSink {
                definition: "{\"to\":\"files\"}".into(),
                rests,
            };
            assert_eq!(StoredSink::decode(&sink.encode()), Some(sink));
        }
        assert_eq!(StoredSink::decode(&[1, 0]), None, "a later format");
        assert_eq!(StoredSink::decode(&[0, 0, 0xff]), None, "no text");
    }
}
