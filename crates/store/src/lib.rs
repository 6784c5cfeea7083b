//! Keyed state over the journal: definitions, commits, settlements and settings, as rows of numbered spaces.
//!
//! Owners of state keep their values in memory, in structures of their own; this crate stores them in the
//! journal and loads them.
//!
//! - `clock`: the one clock of the broker
//! - `table`: rows of one kind, loaded and changed; [`spaces`]: all tables, with their numbers
//! - `staging`: frames of state as appends, and their outcomes
//! - `durable`: changes that are in force and being stored
//! - `room`: room for messages within a bound, reserved before they are appended
//! - `delta_policy`: when a snapshot replaces deltas

mod clock;
mod delta_policy;
mod durable;
mod room;
pub mod spaces;
mod staging;
mod table;

pub use clock::{Clock, ReadWallClock, wall_ms};
pub use delta_policy::DeltaPolicy;
pub use durable::{Changes, Changing, Progress, Stored, stage, stage_unwatched};
pub use room::{Reservation, Room, RoomBound, RoomLedger};
pub use staging::{
    FRAMES_MAX, NotStored, NotStoredKind, StageOutcome, all_outcomes, appends, await_stored, only_outcome,
    store_synced,
};
pub use table::{SingleValue, Table};
