//! Ingestion: events posted to paths of the operator's choice.
//!
//! A token is checked before the body is read, so that a flood of wrong ones costs a hash each and nothing of
//! them is stored. This crate must not know how things are kept, nor any message protocol.
//!
//! - [`definition`]: endpoints as their file declares them
//! - [`token`]: signed tokens; pure, the clock is an argument; `keys`: their keys
//! - `events`: the events of a body, checked and completed; pure
//! - `filter`: the condition on events that are stored; pure
//! - `schema`: the part of JSON Schema that events are checked by; pure
//! - `limit`: requests that each token may make
//! - [`routes`]: the routes of endpoints

pub mod definition;
mod events;
mod filter;
mod keys;
mod limit;
pub mod routes;
mod schema;
pub mod token;

pub use definition::{Endpoint, IngestError, Target};
pub use events::Unknown;
pub use limit::Limit;
pub use routes::{Metrics, router};
pub use schema::Schema;
