//! Consumer groups: members that share the partitions of topics, and the group's committed offsets.
//!
//! ```text
//! front end ──▶ Groups (registry) ── one lock per shard ──▶ Group ─┬─ GroupKind: a pure state machine
//!                  ▲      │                                        └─ Commits: committed offsets
//!   deadlines ─────┘      └──▶ journal: state of groups, commits
//!     (ticks, sweeps)
//! ```
//!
//! A group is changed in *steps*. Under the group's lock the state machine gets a request and the current
//! time, changes itself, and returns in [`Effects`] the answers to give and the state to store. The registry
//! stages that state before it releases the lock, so the journal has the steps of a group in order. The
//! answers of a step that stores state are given once it is stored.
//!
//! - `registry`: all groups; lookup, locking, steps
//! - `group`: one group: its kind, its commits, its waiting requests
//! - `classic_requests`, `consumer_requests`: requests of members
//! - `commit`: committing, fetching and deleting offsets
//! - `stored_consumer_group`: how consumer groups are stored; `stored`: the stored format of groups and
//!   commits
//! - `stable_watch`: waiting for a stable group to change
//! - `deadlines`: the task that wakes groups at their deadlines and removes expired commits
//! - `heartbeat_interval`: time between heartbeats
//! - `migration`: groups that change their protocol while they run; [`member_protocol`]: the codec that this
//!   needs
//! - [`classic`]: groups whose members assign partitions among themselves
//! - [`consumer`]: groups whose partitions the broker assigns
//! - `commits`: the committed offsets of one group; `commit_counts`: how many there were; `lag`: their
//!   distance from the ends of partitions
//! - `effects`, `replies`, `strategy`, `error`, `moment`; `settings`, `metrics`
//!
//! [`classic`] and [`consumer`] know neither each other nor anything above them in this list.
//!
//! This crate knows no wire protocol, no connections and no contents of the members' metadata.

pub mod classic;
mod classic_requests;
mod commit;
mod commit_counts;
mod commits;
pub mod consumer;
mod consumer_requests;
mod deadlines;
mod deletion;
mod effects;
mod error;
mod group;
mod heartbeat_interval;
mod homes;
mod lag;
pub mod member_protocol;
mod metrics;
mod migration;
mod moment;
mod pending;
mod registry;
mod replies;
mod settings;
mod stable_watch;
mod stored;
mod stored_consumer_group;
mod strategy;

pub use commit::{COMMITS_TOGETHER, CommitTicket, NewCommit};
pub use commit_counts::GroupCounts;
pub use commits::{CommitSender, CommittedOffset};
pub use consumer_requests::{ConsumerError, HeartbeatResponse};
pub use deletion::DeletionTicket;
pub use effects::{Effects, MemberReply, Store, WaiterId};
pub use error::GroupError;
pub use group::{Group, GroupKind, GroupProtocol, GroupState, StepResult};
pub use lag::lag;
pub use member_protocol::MemberProtocol;
pub use moment::Moment;
pub use pending::PendingCommits;
pub use registry::Groups;
pub use replies::{JoinError, JoinReply, JoinedMember, MemberId, SyncReply};
pub use settings::{GroupOverrides, GroupSettings, Migration, RuleOverrides};
pub use stable_watch::StableWatch;
pub use stored_consumer_group::StoredConsumerGroup;
pub use strategy::Strategy;
