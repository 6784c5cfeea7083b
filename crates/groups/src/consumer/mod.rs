//! Consumer groups whose partitions the broker assigns: with heartbeats, members report their subscriptions
//! and partitions, and get their assignments.
//!
//! Three epochs avoid a stop of the whole group. The *group epoch* rises when members or topics change. For
//! it, a *target* assignment of all members is computed. Each *member* then moves to its target at its own
//! pace: it gives partitions back first, and then gets those that others have given back. A partition is
//! never with two members.
//!
//! Pure: no I/O and no clock; time is an argument, in ms of any clock that does not go back. Topics are seen
//! through [`stafett_topics::TopicSource`]. State to store comes out of [`ConsumerGroup::take_changes`] and
//! goes in through [`ConsumerGroup::restore`]. A heartbeat that changes nothing costs a look-up, for any size
//! of the group.
//!
//! - `partitions`: sets of partitions
//! - `subscription`: subscriptions by name and by pattern
//! - `member`: a member and its states
//! - `assign`: computation of the targets
//! - `group`: the group, its epochs, its state
//! - `heartbeat`: heartbeats and their answers; joining, leaving
//! - [`reconcile`]: one step of a member towards its target
//! - `timeouts`: removal of members that are silent or do not give partitions back
//! - `commits`: permission to commit and fetch offsets
//! - `stored`: the stored format

mod assign;
mod commits;
mod group;
mod heartbeat;
pub(crate) mod member;
mod partitions;
mod reconcile;
mod stored;
mod subscription;
mod timeouts;

#[cfg(test)]
pub(crate) mod tests;

pub use assign::Assignor;
pub use commits::CommitError;
pub use group::{ConsumerGroup, ConsumerGroupState, Rules};
pub use heartbeat::{Heartbeat, HeartbeatError, HeartbeatReply};
pub use member::{Classic, EPOCH_JOIN, EPOCH_LEAVE, EPOCH_LEAVE_STATIC, Member, MemberState};
pub use partitions::{OwnedPartition, OwnedPartitions, Partition, Partitions};
pub use subscription::{PatternError, Subscription};
