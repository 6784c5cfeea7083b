//! Consumer groups whose partitions the broker assigns: members say what they want and what they have, with
//! every heartbeat; the group says what they are to have.
//!
//! Three epochs make it work without everybody stopping at once. The *group's* rises when members or topics
//! change. A *target* is computed for it: what everybody is to have in the end. Each *member* then goes there
//! at its own pace: it gives back first, and gets what others have given back. A partition is never with two
//! members.
//!
//! Pure: no I/O and no clock; time is an argument, in ms of any clock that does not go back. Topics are seen
//! through [`stafett_topics::TopicSource`]. What has to be stored comes out of [`Group::take_changes`], and
//! goes in through [`Group::restore`]. A heartbeat that changes nothing costs a look-up, whatever the group's
//! size.
//!
//! - [`partitions`]: sets of partitions
//! - [`topics`]: what groups have to know of topics
//! - [`subscription`]: what members want, by name and by pattern
//! - [`member`]: a member and its states
//! - [`assign`]: who is to have what
//! - [`group`]: the group, its epochs, its state
//! - [`heartbeat`]: what a member says and is told; joining, leaving
//! - [`reconcile`]: one step of a member towards its target
//! - [`timeouts`]: members that are silent, or do not give back
//! - [`classic`]: members that know only the classic protocol
//! - [`commits`]: who may commit and fetch offsets
//! - [`stored`]: what is stored of a group

pub mod assign;
pub mod classic;
pub mod commits;
pub mod group;
pub mod heartbeat;
pub mod member;
pub mod partitions;
mod reconcile;
pub mod stored;
pub mod subscription;
pub mod timeouts;

#[cfg(test)]
mod tests;

pub use assign::Assignor;
pub use commits::CommitError;
pub use group::{Group, Rules, State};
pub use heartbeat::{Answer, Heartbeat, HeartbeatError};
pub use member::{EPOCH_JOIN, EPOCH_LEAVE, EPOCH_LEAVE_STATIC, Member, MemberState};
pub use partitions::{Held, Holding, Partition, Partitions};
pub use subscription::{PatternError, Subscription};
