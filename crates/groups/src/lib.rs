//! Groups: consumers that share topics, and how far each group has come.
//!
//! ```text
//! front end ──▶ Groups (registry) ── one lock per shard ──▶ Group ─┬─ GroupKind: a pure state machine
//!                  ▲      │                                        └─ Commits: committed offsets
//!     driver ──────┘      └──▶ journal: state of groups, commits
//!     (deadlines, sweeps)
//! ```
//!
//! A group is changed in *steps*: under its lock the state machine gets a request and the moment, changes
//! itself and says in [`Effects`] who is to be answered and what is to be stored. The registry stages what is
//! to be stored before it lets go of the lock, so the journal has the steps of a group in their order;
//! answers of a step that stores are given once it is stored.
//!
//! - [`registry`]: where groups live, how they are found, locked and stepped
//! - [`group`]: one group: its kind, its commits, who waits for it
//! - [`classic`]: groups whose members agree among themselves who gets what
//! - [`consumer`]: groups whose partitions the broker assigns; [`assigned`]: how they are stored;
//!   [`consumers`]: what their members ask
//! - [`commits`]: the committed offsets of one group; [`commit`]: committing, asking and forgetting
//! - [`moving`]: groups that change their protocol while they run; [`language`]: what that takes
//! - [`members`]: what members of classic groups ask
//! - [`stability`]: waiting for a stable group to change
//! - [`driver`]: the task that wakes groups when their time has come, and sweeps out what has expired
//! - [`stored`]: how groups and commits are stored
//! - `pace`: how often their members are told to report
//! - [`effects`], [`error`], [`moment`], [`settings`], [`metrics`]
//!
//! Nothing here knows a protocol, a connection or what members tell each other.

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
