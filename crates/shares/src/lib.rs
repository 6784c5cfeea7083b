//! Share groups: members of a group take messages of topics together, and settle each by itself.
//!
//! A group has a place in each topic that its members read: a dispatcher over the topic's partitions
//! ([`stafett_delivery`]), as a queue over a topic has, from which messages are pulled. Messages that a
//! member takes are locked for it for some time; then they return, unless it has settled them or renewed the
//! lock. Members, sessions and the assignment of partitions are known to others.
//!
//! - `places`: all places; `load`: loading at the start; `changes`: places that are made, moved and deleted
//! - `place`: the place of a group in a topic; `acquire`: taking messages; `acknowledge`: settling them
//! - `locks`: locks of messages; `throttle`: isolation of those that were delivered often; both pure

mod acknowledge;
mod acquire;
mod changes;
mod load;
mod locks;
mod metrics;
mod place;
mod places;
mod throttle;

pub use acknowledge::{AcknowledgeError, AcknowledgeKind, Acknowledgement};
pub use acquire::{Acquire, Acquired, AcquiredRange};
pub use changes::PlaceStart;
pub use place::{Place, PlaceCounts};
pub use places::{ShareRules, Shares};
