//! Routing: exchanges, their bindings, and the way of a message through them.
//!
//! A [`Router`] is a value: a clone copies a few pointers and is immutable. Publishers route with a clone
//! while bindings change in the original; adding or removing one of 100,000 bindings copies one path of
//! nodes. The cost of a look-up depends on the bindings that match, not on the others.
//!
//! No I/O, clock or protocol here, and no notion of a target's type: queues and topics belong to the broker.
//!
//! - [`live`]: subscriptions of clients to live topics
//! - `router`: exchanges by name, and routing through them
//! - `spec`: settings of exchanges and bindings
//! - `filter`: conditions of bindings and consumers; `content`: messages as they see them
//! - `attributes`: readers of the headers and properties of messages
//! - `message_view`: the parts of a message that routing uses
//! - `routes`: result of routing
//! - `tables`: one table of bindings per kind of exchange; `hash_trie`: the structure behind the large ones;
//!   `cache_prefetch`: prefetch of memory

mod attributes;
mod cache_prefetch;
mod content;
mod filter;
mod hash;
mod hash_trie;
mod hops;
pub mod live;
mod message_view;
mod router;
mod routes;
mod spec;
mod tables;

pub use attributes::{AttributeReaders, ReadAttributes};
pub use content::{Content, StoredContent};
pub use filter::{Filter, FilterWork};
pub use hops::{FilteredHop, Hop, Target};
pub use message_view::{HeaderValue, KeyOnly, MessageView};
pub use router::{BindError, Names, PREFETCH_MAX, Router};
pub use routes::{DependsOn, Routes};
pub use spec::{
    BadPattern, ExchangeKind, HashOn, HeaderMatch, Mode, NoSuchExchange, Pattern, Property, Spec,
};
