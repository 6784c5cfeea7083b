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
//! - `live`: the main type; publishing, listening
//! - `presence`: counts and lists of clients, subscriptions and subscribers
//! - `subscribe`: subscribing and unsubscribing, as groups that are stored together
//! - `clients`: clients, by name and by number
//! - `topics`: topics in shards
//! - `outbox`: bounded queue of messages for one connection
//! - `in_transit`: messages taken out of an outbox and not written yet
//! - `message`: messages and their encoded forms
//! - `duplicates`: the duplicate filter
//! - `filters`: conditions of listening clients
//! - `log_state`, `log_delivery`: stored topics behind live ones
//! - `load`, `stored`: loading and stored format of subscriptions
//! - `row_compaction`: compaction of stored subscriptions
//! - `settings`, `metrics`

mod clients;
mod duplicates;
mod filters;
mod in_transit;
mod live;
mod load;
mod log_delivery;
mod log_state;
mod message;
mod metrics;
mod outbox;
mod presence;
mod row_compaction;
mod settings;
mod stored;
mod subscribe;
mod topics;

pub use clients::{CLIENT_NAME_BYTES_MAX, ClientName, ClientNumber};
pub use duplicates::{DuplicateRule, SameBy};
pub use filters::{Filter, FilterError};
pub use live::{Live, Published, TooManyClients};
pub use log_delivery::{HeldSubscription, LogRule, PendingAppends, StartFrom};
pub use log_state::{GapNotice, GapReason, LogPosition};
pub use message::{Format, Message, Payload};
pub use metrics::LiveMetrics;
pub use outbox::{Outbox, OutboxBound, OutboxDrain, Overflow, TopicGuard};
pub use presence::{Audience, ClientPresence, Page, Presence, SubscriberCount, Subscription};
pub use settings::LiveSettings;
pub use stafett_journal::{Outcome, Refusal, Ticket};
pub use stafett_routing::live::{Pattern, PatternError};
pub use stafett_store::NotStored;
pub use subscribe::{ChangeError, NameList, SubscriptionChange, SubscriptionEdit};
pub use topics::TopicHash;
