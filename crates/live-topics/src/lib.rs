//! Live topics: a message goes to the connected subscribers and is then forgotten, unless a log lies behind its
//! topic.
//!
//! A *client* is an id that its owner chose; it has subscriptions, which are stored, whether or not it is
//! connected. A connected client *listens* with an outbox. A publish finds the subscribers of its topic by
//! one hash, is serialised once per format, and goes into the outboxes of those who listen.
//!
//! Locks, in the order in which they may be taken: clients → logs → topics (one shard) → patterns → listeners
//! → outbox. None is held across an await. Changes of one client's subscriptions follow each other: they hold
//! its turn until they are stored.
//!
//! - `hub`: the whole; publishing, listening
//! - `presence`: who is there, and who subscribes to what
//! - `change`: subscribing and unsubscribing, as groups that are stored together
//! - `clients`: who there is, by name and by number
//! - `topics`: topics in shards
//! - `outbox`: what waits to be sent to one connection, within a bound
//! - `sending`: what was taken out of it and is not written yet
//! - `message`: what is published
//! - `duplicates`: the filter of what was published before
//! - `logs`: stored topics behind live ones
//! - `load`, `stored`: how subscriptions are kept
//! - `rewrite`: keeping what is stored in proportion to what there is
//! - `settings`, `metrics`

mod change;
mod clients;
mod duplicates;
mod hub;
mod load;
mod logs;
mod message;
mod metrics;
mod outbox;
mod presence;
mod rewrite;
mod sending;
mod settings;
mod stored;
mod topics;

pub use change::{ChangeError, NameList, SubscriptionChange, What};
pub use clients::{CLIENT_NAME_BYTES_MAX, ClientName, ClientNumber};
pub use duplicates::{DuplicateRule, SameBy};
pub use hub::{Live, Published, TooManyClients};
pub use logs::{From, LogRule, Mark, Missed, MissedWhy, Staged};
pub use message::{Format, Message, Payload};
pub use metrics::LiveMetrics;
pub use outbox::{Outbox, OutboxBound, Overflow, Sent};
pub use presence::{Audience, Page, Presence, Present, Subscribed, Subscription};
pub use settings::LiveSettings;
pub use stafett_journal::{Outcome, Ticket};
pub use stafett_routing::live::{Pattern, PatternError};
pub use topics::TopicHash;
