//! Where a message goes: exchanges, their bindings, and the way through them.
//!
//! A [`Router`] is a value: cloning it takes a few pointers, and a clone never changes. So whoever publishes
//! routes against a clone, while bindings come and go in the original; adding or removing one of 100,000
//! bindings copies a path of some nodes. What a look-up costs depends on what matches, not on what does not.
//!
//! There is no I/O here, no clock, no protocol, and no idea of what a target is: queues and topics are the
//! broker's.
//!
//! - [`live`]: subscriptions of clients to live topics
//! - [`router`]: exchanges by name, and the way of a message through them
//! - [`spec`]: what an exchange is, and what a binding asks for
//! - [`view`]: what of a message decides its way
//! - [`routes`]: where a message goes
//! - `tables`: one table of bindings per kind of exchange; `hash_trie`: what the large ones of them are made
//!   of; `near`: memory that is asked for before it is needed

mod hash;
mod hash_trie;
mod hops;
pub mod live;
mod near;
pub mod router;
pub mod routes;
pub mod spec;
mod tables;
pub mod view;

pub use hops::{Hop, Target};
pub use router::{BindError, FORESEEN, Names, Router};
pub use routes::{DependsOn, Routes};
pub use spec::{BadPattern, HashOn, HeaderMatch, Kind, Mode, NoSuchExchange, Pattern, Property, Spec};
pub use view::{HeaderValue, KeyOnly, View};
