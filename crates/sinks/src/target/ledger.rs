//! Positions of targets that hold none. The sink's app in the broker has them.
//!
//! Bounds come first: the offsets of a batch are stored before it is sent. So a batch whose answer was lost
//! is sent again as it was, and a receiver can tell it by its id.
//!
//! The position moves behind whole batches only. One of which a row is refused is sent in parts, and after a
//! crash begins anew: it is halved at the same rows, so its parts have the same ids.

use std::fmt;

use async_trait::async_trait;

use super::{Opened, Part, Place, Start, TargetError};

/// Keeper of positions, apart from the target.
#[async_trait]
pub trait Ledger: fmt::Debug + Send + Sync {
    /// Returns the position of a place, and the end of a batch that was begun. A place without a position
    /// begins at `start.next`.
    async fn open(&self, place: &Place, start: Start) -> Result<Opened, TargetError>;

    /// Stores the bounds of a batch before it is sent, unless another writer has the place.
    async fn begin(&self, place: &Place, from: u64, next: u64) -> Result<(), TargetError>;

    /// Notes that a batch was taken. The runner stores the position afterwards.
    fn end(&self, place: &Place, next: u64);

    /// Stores the bounds of the batch of a part before that is sent.
    async fn begin_part(&self, part: &Part<'_>) -> Result<(), TargetError> {
        let (from, next) = part.batch;
        self.begin(part.place, from, next).await
    }

    /// Notes that a part was taken.
    fn end_part(&self, part: &Part<'_>) {
        if part.next == part.batch.1 {
            self.end(part.place, part.next);
        }
    }
}
