//! Positions of targets that hold none. The sink's app in the broker has them.
//!
//! Bounds come first: the offsets of a batch are stored before it is sent. So a batch whose answer was lost
//! is sent again as it was, and a receiver can tell it by its id.

use std::fmt;

use async_trait::async_trait;

use super::{Opened, Place, Start, TargetError};

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
}
