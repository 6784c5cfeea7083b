//! The opening of a journal over objects: the begins of its segments are fetched several at a time, and an
//! object that is lost is damage.
//!
//! Recovery reads the begin of each arrival segment, one after the other. So their first objects are put into
//! the cache before.
//!
//! **A lost object** of a segment that others follow is read as zeros while the journal is opened, and so
//! recovery finds damage in its place, as after that of a disk: what it had is missing or fenced, and the rest
//! serves. Two cases are no loss, and errors: a former owner meets objects that its successor deleted; and the
//! newest segment has no later one that would tell a hole from the journal's end.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use stafett_journal::disk::RecoveryReport;
use stafett_journal::disk::storage::WritePattern;
use stafett_model::Lock;

use crate::agreement::is_referred_to;
use crate::belonging::check_store;
use crate::objects::Part;
use crate::remote::Remote;
use crate::storage::{Entry, SharedStorage};
use crate::transfer::at_once;
use crate::uplink::Uplink;

/// Lost objects that were met while the journal is opened; `None` at other times.
#[derive(Debug, Default)]
pub(crate) struct Losses(Lock<Option<BTreeSet<String>>>);

/// The time in which the journal is opened. It ends when this is dropped.
#[derive(Debug)]
pub struct Opening(Arc<Uplink>);

impl Opening {
    /// Ends the opening. It is an error if recovery may have taken a hole for the journal's end.
    pub fn end(self, report: &RecoveryReport) -> io::Result<()> {
        let lost = self.0.losses.0.lock();
        if report.torn
            && let Some(object) = lost.as_ref().and_then(BTreeSet::first)
        {
            let why = format!("the journal seems to end at the object {object}, which is lost");
            return Err(io::Error::other(why));
        }
        Ok(())
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        *self.0.losses.0.lock() = None;
    }
}

impl SharedStorage {
    /// Begins the opening of the journal.
    pub fn begin_opening(&self) -> io::Result<Opening> {
        *self.uplink.losses.0.lock() = Some(BTreeSet::new());
        let opening = Opening(Arc::clone(&self.uplink));
        self.fetch_begins()?;
        Ok(opening)
    }

    /// Has copies of the first objects of all arrival segments in the cache, as far as half of that goes.
    fn fetch_begins(&self) -> io::Result<()> {
        let mut segments = Vec::new();
        for (name, entry) in &self.names()?.files {
            if let Entry::Stored(remote) = entry
                && WritePattern::of(name) == WritePattern::Append
                && self.uplink.settings.objects.is_some()
            {
                segments.push(Arc::clone(remote));
            }
        }
        if let [earlier @ .., _] = segments.as_slice() {
            earlier.iter().for_each(|remote| remote.set_followed());
        }
        let mut left = self.uplink.settings.cache_bytes / 2;
        let mut begins: Vec<(Arc<Remote>, Part)> = Vec::new();
        for remote in segments {
            let (_, parts) = remote.parts(&self.uplink)?;
            let Some(first) = parts.first().filter(|part| part.at == 0) else {
                continue;
            };
            let Some(rest) = left.checked_sub(first.bytes.into()) else {
                break;
            };
            left = rest;
            begins.push((remote, first.clone()));
        }
        // Errors are those of the read that needs the object.
        at_once(&begins, |(remote, part)| {
            let _ = self.uplink.fetch(&remote.name, std::slice::from_ref(part));
            self.uplink.check()
        })
    }
}

impl Uplink {
    /// Returns true if an object is known to be lost.
    pub(crate) fn has_lost(&self, object: &str) -> bool {
        let losses = self.losses.0.lock();
        losses.as_ref().is_some_and(|lost| lost.contains(object))
    }

    /// Notes that the store has not the bytes of an object. False if that is an error: the journal is not
    /// being opened, another node owns the cell, or the object is not needed any more.
    pub(crate) fn lose(&self, file: &str, part: &Part) -> io::Result<bool> {
        if self.losses.0.lock().is_none() {
            return Ok(false);
        }
        // A store that is not mounted has lost nothing.
        self.until_answered(|| check_store(&*self.database, self.settings.objects.as_ref()))?;
        let is_needed = self.until_answered(|| is_referred_to(&*self.database, &part.object))?;
        // Last: an object that a successor deleted was needed before its claim.
        if self.until_answered(|| self.database.owner())?.epoch != self.epoch {
            return Err(self.fenced());
        }
        if is_needed && let Some(lost) = &mut *self.losses.0.lock() {
            tracing::error!(
                file,
                object = part.object,
                "an object is lost: its bytes are damaged"
            );
            lost.insert(part.object.clone());
            return Ok(true);
        }
        Ok(false)
    }
}
