//! Consumer groups: members that share the partitions of topics, and the group's committed offsets.
//!
//! ```text
//! front end ──▶ Groups (registry) ── one lock per shard ──▶ Group ─┬─ GroupKind: a pure state machine
//!                  ▲      │                                        └─ Commits: committed offsets
//!     driver ──────┘      └──▶ journal: state of groups, commits
//!     (deadlines, sweeps)
//! ```
//!
//! A group is changed in *steps*. Under the group's lock the state machine gets a request and the current
//! time, changes itself, and returns in [`Effects`] the answers to give and the state to store. The registry
//! stages that state before it releases the lock, so the journal has the steps of a group in order. The
//! answers of a step that stores state are given once it is stored.
//!
//! - [`registry`]: all groups; lookup, locking, steps
//! - [`group`]: one group: its kind, its commits, its waiting requests
//! - [`classic`]: groups whose members assign partitions among themselves
//! - [`consumer`]: groups whose partitions the broker assigns; [`assigned`]: how they are stored;
//!   [`consumers`]: requests of their members
//! - [`commits`]: the committed offsets of one group; [`commit`]: committing, fetching and deleting them
//! - [`moving`]: groups that change their protocol while they run; [`language`]: the codec that this needs
//! - [`members`]: requests of members of classic groups
//! - [`stability`]: waiting for a stable group to change
//! - [`driver`]: the task that wakes groups at their deadlines and removes expired commits
//! - [`stored`]: the stored format of groups and commits
//! - `pace`: heartbeat intervals
//! - [`effects`], [`error`], [`moment`], [`settings`], [`metrics`]
//!
//! This crate knows no wire protocol, no connections and no contents of the members' metadata.

pub mod assigned;
pub mod classic;
pub mod commit;
pub mod commits;
pub mod consumer;
pub mod consumers;
mod deletion;
pub mod driver;
pub mod effects;
pub mod error;
pub mod group;
pub mod language;
pub mod members;
pub mod metrics;
pub mod moment;
pub mod moving;
mod pace;
pub mod registry;
pub mod settings;
pub mod stability;
pub mod stored;

pub use assigned::AssignedGroup;
pub use commit::{COMMITS_TOGETHER, CommittedBy, Committing, NewCommit};
pub use commits::Committed;
pub use consumers::{ConsumerError, Told};
pub use deletion::Deletion;
pub use effects::{Answer, Effects, Store, Wait};
pub use error::GroupError;
pub use group::{Group, GroupKind, GroupState, Stepped};
pub use language::Language;
pub use moment::Moment;
pub use registry::Groups;
pub use settings::{GroupOverrides, GroupSettings, Migration};
pub use stability::Stability;
