//! The opening of a journal over objects: the begins of its segments are fetched several at a time.
//!
//! Recovery reads the begin of each arrival segment, one after the other. So their first objects are put into
//! the cache before. A lost object is an error of the read that needs it, and the cell stays shut: a store
//! that answers "not there" may be one that is not whole yet, and damage would be durable.

use std::sync::Arc;

use stafett_journal::disk::storage::WritePattern;

use crate::objects::Part;
use crate::remote::Remote;
use crate::storage::{Entry, SharedStorage};
use crate::transfer::at_once;

impl SharedStorage {
    /// Has copies of the first objects of all arrival segments in the cache, as far as half of that goes.
    pub fn fetch_begins(&self) -> std::io::Result<()> {
        let mut left = self.uplink.settings.cache_bytes / 2;
        let mut begins: Vec<(Arc<Remote>, Part)> = Vec::new();
        if self.uplink.settings.objects.is_none() {
            return Ok(());
        }
        for (name, entry) in &self.names()?.files {
            let Entry::Stored(remote) = entry else { continue };
            if WritePattern::of(name) != WritePattern::Append {
                continue;
            }
            let (_, parts) = remote.parts(&self.uplink)?;
            let Some(first) = parts.first().filter(|part| part.at == 0) else {
                continue;
            };
            let Some(rest) = left.checked_sub(first.bytes.into()) else {
                break;
            };
            left = rest;
            begins.push((Arc::clone(remote), first.clone()));
        }
        // Errors are those of the read that needs the object.
        at_once(self.uplink.settings.requests_max, &begins, |(remote, part)| {
            let _ = self.uplink.fetch(&remote.name, std::slice::from_ref(part));
            self.uplink.check()
        })
    }
}
