//! Live topics for browsers and scripts: JSON over WebSocket at `/live`, and the same over HTTP.
//!
//! The protocol is described for its users in `docs/live.md`. This crate turns it into calls of the broker's
//! live topics; it must not know how those are stored, nor any other front end.
//!
//! - [`command`]: parses commands from JSON
//! - [`json`]: encodes answers, errors and broadcasts as JSON
//! - [`msgpack`]: broadcasts in MessagePack
//! - [`fault`]: errors and their texts
//! - [`rights`]: rights on live topics
//! - [`session`]: executes the commands of one WebSocket
//! - [`presence`]: clients, topics and subscriptions, as fields of answers
//! - [`events`]: one stream of server-sent events
//! - `lists`: `GET` routes for presence and subscriptions
//! - `query`: fields of commands in the query of a request
//! - [`router`]: the routes
//! - [`front`], [`settings`]: shared by the routes; `client`: the registry's view of a client

mod client;
pub mod command;
pub mod events;
pub mod fault;
pub mod front;
pub mod json;
mod lists;
pub mod msgpack;
pub mod presence;
mod query;
pub mod rights;
pub mod router;
pub mod session;
pub mod settings;

pub use front::LiveFront;
pub use router::router;
pub use settings::LiveFrontSettings;
