//! Bounds of compaction that depend on readers and on transactions.

use stafett_model::{BatchHeader, Offset};

use super::super::super::log::LogState;

/// Returns the offset from which nothing is compacted: batches behind it may still turn out not to exist for
/// readers.
pub(super) fn end_bound(state: &LogState) -> Offset {
    state.visible
}

/// Returns true if a batch is hidden from readers for ever: its records replace no others, and go.
pub(super) fn is_hidden(_state: &LogState, _header: &BatchHeader) -> bool {
    false
}
