//! Logs of the other cells of a cluster: read, written and watched like logs of one's own.
//!
//! ```text
//! broker of a cell ── CellJournal ─┬─ its own journal
//!                                  └─ OtherCell ── connection ── LogsDoor ── catalog of that cell
//! ```
//!
//! - `cell_journal`: a journal that hands appends and reads of other cells' logs on
//! - `other_cell`: another cell, with the bounds of its logs as last heard, and the questions to it
//! - `conversation`: one connection to its owner
//! - `door`: the other end
//! - `wire`: messages

mod cell_journal;
mod conversation;
mod door;
mod other_cell;
mod wire;

pub use cell_journal::{CellJournal, Ways};
pub use door::LogsDoor;
