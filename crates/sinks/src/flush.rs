//! One batch into a target: as a whole, or in halves until the refused rows are found.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;

use crate::bisection::{Bisection, Refused};
use crate::convert::Reason;
use crate::gather::{Batch, Poison};
use crate::rows::Slice;
use crate::target::{Part, Place, Target, TargetError};

/// Class of rows that the target refused.
pub const REFUSED: &str = "refused";

/// Place of records that are not written.
#[async_trait]
pub trait DeadLetters: Send {
    /// Stores records before the position passes them.
    async fn store(&mut self, place: &Place, poison: &[Poison]) -> Result<(), FlushError>;
}

/// Offsets of a place whose records are in the dead letters already, so that a batch that is tried again
/// stores none twice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoredLetters(BTreeSet<u64>);

impl StoredLetters {
    /// Returns the records that are not stored yet. They come in no order: of a batch, those that cannot be
    /// converted are known before those that the target refuses.
    pub fn missing<'a>(&self, poison: &'a [Poison]) -> Vec<&'a Poison> {
        let is_missing = |found: &&Poison| !self.0.contains(&found.offset);
        poison.iter().filter(is_missing).collect()
    }

    pub fn add(&mut self, poison: &[&Poison]) {
        self.0.extend(poison.iter().map(|found| found.offset));
    }

    /// Forgets those that the position has passed.
    pub fn forget_below(&mut self, next: u64) {
        self.0 = self.0.split_off(&next);
    }

    /// Forgets all: another topic has other records at the same offsets.
    pub fn clear(&mut self) {
        self.0.clear();
    }
}

/// Reason why a flush did not come to its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FlushError {
    #[error(transparent)]
    Target(#[from] TargetError),
    /// The dead letters cannot be stored at the moment.
    #[error("dead letters: {0}")]
    DeadLetters(String),
    /// A poison record, where none is allowed, or one too many.
    #[error("{count} records are poison, the last at offset {offset} ({class}): {text}")]
    TooMuchPoison {
        count: usize,
        offset: u64,
        class: &'static str,
        text: String,
    },
}

/// Result of a flush.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Flushed {
    pub rows: u64,
    /// Records that went to the dead letters, by class.
    pub poison: BTreeMap<&'static str, u64>,
    /// Parts that were written or refused.
    pub tries: u64,
}

/// Writes a batch, and dead letters of its poison before the position passes them.
///
/// After an error, some of the batch may be stored: the target knows its position.
pub async fn flush(
    target: &mut dyn Target,
    epoch: u64,
    batch: &Batch,
    dead: &mut dyn DeadLetters,
) -> Result<Flushed, FlushError> {
    let mut search = Bisection::new(batch.rows.len());
    let mut from = batch.from;
    let mut flushed = Flushed::default();
    let mut poison = batch.poison.iter().peekable();
    let mut culprits: Vec<Poison> = Vec::new();
    while let Some(range) = search.part() {
        let next = match batch.rows.offset(range.end) {
            Some(next) if !search.is_last() => next,
            _ => batch.next,
        };
        // Dead letters come first: a crash in between stores them twice, under the same key.
        while let Some(found) = poison.next_if(|poison| poison.offset < next) {
            culprits.push(found.clone());
        }
        if !culprits.is_empty() {
            culprits.sort_by_key(|poison| poison.offset);
            dead.store(&batch.place, &culprits).await?;
            for culprit in culprits.drain(..) {
                *flushed.poison.entry(culprit.reason.class).or_default() += 1;
            }
        }
        let part = Part {
            place: &batch.place,
            epoch,
            from,
            next,
            batch: (batch.from, batch.next),
            rows: Slice {
                rows: &batch.rows,
                range: range.clone(),
            },
            records: records_of(batch, from, next, range.len()),
        };
        flushed.tries += 1;
        match target.write(&part).await {
            Ok(()) => {
                flushed.rows += range.len() as u64;
                search.taken();
                from = next;
            }
            Err(TargetError::Poison { class, text }) if range.is_empty() => {
                let why = format!("the target refused a batch without rows: {class}: {text}");
                return Err(TargetError::Stop(why).into());
            }
            Err(TargetError::Poison { class, text }) if batch.is_whole => {
                let why = format!("the target refused the figures of a batch: {class}: {text}");
                return Err(TargetError::Stop(why).into());
            }
            Err(TargetError::Poison { class, text }) => {
                if let Refused::Culprit(row) = search.refused() {
                    culprits.push(Poison {
                        offset: batch.rows.offset(row).unwrap_or_default(),
                        reason: Reason {
                            class: REFUSED,
                            text: format!("{class}: {text}"),
                        },
                    });
                }
            }
            Err(why) => return Err(why.into()),
        }
    }
    Ok(flushed)
}

/// Returns the number of records of a part: exact for a whole batch, else that of its rows.
fn records_of(batch: &Batch, from: u64, next: u64, rows: usize) -> u64 {
    if from == batch.from && next == batch.next {
        batch.records
    } else {
        rows as u64
    }
}
