//! Live topics: a message is delivered to the connected subscribers and then forgotten, unless a log lies
//! behind its topic.
//!
//! A *client* is an id chosen by its owner. It has subscriptions, which are stored, whether or not it is
//! connected. A connected client *listens* with an outbox. A publish finds the subscribers of its topic by
//! one hash, is serialised once per format, and goes into the outboxes of the listening ones.
//!
//! Lock order: clients → logs → topics (one shard) → patterns → listeners → outbox. None is held across an
//! await. Changes of one client's subscriptions are serialised: each holds the client's turn until it is
//! stored.
//!
//! - `hub`: the main type; publishing, listening
//! - `presence`: counts and lists of clients, subscriptions and subscribers
//! - `change`: subscribing and unsubscribing, as groups that are stored together
//! - `clients`: clients, by name and by number
//! - `topics`: topics in shards
//! - `outbox`: bounded queue of messages for one connection
//! - `sending`: messages taken out of an outbox and not written yet
//! - `message`: messages and their encoded forms
//! - `duplicates`: the duplicate filter
//! - `logs`: stored topics behind live ones
//! - `load`, `stored`: loading and stored format of subscriptions
//! - `rewrite`: compaction of stored subscriptions
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
