//! Ingestion: events posted to paths of the operator's choice.
//!
//! A token is checked before the body is read, so that a flood of wrong ones costs a hash each and nothing of
//! them is stored. This crate must not know how things are kept, nor any message protocol.
//!
//! - [`definition`]: endpoints as their file declares them
//! - [`token`]: signed tokens; pure, the clock is an argument
//! - `events`: the events of a body, completed; pure
//! - [`routes`]: the routes of endpoints

pub mod definition;
mod events;
pub mod routes;
pub mod token;

pub use definition::{Endpoint, IngestError};
pub use routes::{Metrics, router};
