//! Bounds of compaction that depend on readers and on transactions.

use stafett_model::{BatchHeader, Offset, ProducerId};

use super::super::super::log::LogState;

/// Returns the offset from which nothing is compacted: batches behind it may still turn out not to exist for
/// readers, or belong to an open transaction.
pub(super) fn end_bound(state: &LogState) -> Offset {
    let transactions = state.transactions();
    transactions.map_or(state.visible, |known| known.stable(state.visible))
}

/// Returns true if a batch is of an aborted transaction: its records replace no others, and go.
pub(super) fn is_hidden(state: &LogState, header: &BatchHeader) -> bool {
    header.is_transactional()
        && state.transactions().is_some_and(|known| {
            let base = Offset(header.base_offset.cast_unsigned());
            known.is_aborted(ProducerId(header.producer_id), base)
        })
}
