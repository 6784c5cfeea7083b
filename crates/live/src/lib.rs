//! Live topics for browsers and scripts: JSON over WebSocket at `/live`, and the same over HTTP.
//!
//! The protocol is described for its users in `docs/live.md`. This crate turns it into calls of the broker's
//! live topics; it must not know how those are kept, nor any other front end.
//!
//! - [`command`]: commands, out of JSON
//! - [`json`]: answers, errors and broadcasts, into JSON
//! - [`msgpack`]: the same in MessagePack
//! - [`fault`]: errors and their words
//! - [`session`]: what commands do
//! - [`presence`]: who is there, and who subscribes to what
//! - [`connection`]: one WebSocket
//! - [`events`]: one stream of server-sent events
//! - `lists`: what is asked for with `GET`
//! - `posted`: bodies of requests, within bounds
//! - [`query`]: what a request asks for behind its `?`
//! - [`router`]: the routes
//! - [`front`], [`origin`], [`settings`]: what they share

pub mod command;
pub mod connection;
pub mod events;
pub mod fault;
pub mod front;
pub mod json;
mod lists;
pub mod msgpack;
pub mod origin;
mod posted;
pub mod presence;
pub mod query;
pub mod router;
pub mod session;
pub mod settings;

pub use front::LiveFront;
pub use router::router;
pub use settings::{LiveFrontSettings, Origins};
