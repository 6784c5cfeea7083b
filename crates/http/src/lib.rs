//! The HTTP listener: `/health`, `/metrics`, and merged routers. Also the kit from which these are made.
//!
//! It must not know the merged routers' purpose, nor any message protocol. Accepting, the connection limit
//! and graceful shutdown belong to `stafett-net`; this crate has the limits that HTTP itself needs.
//!
//! - [`health`]: the state of the process, as one word
//! - [`metrics`]: the registry as text
//! - [`router`]: the routes that are always present
//! - [`server`]: one connection; `client`: its client
//!
//! The kit:
//!
//! - [`guard`]: rejects requests from web pages
//! - [`query`]: parameters after the `?` of a request
//! - [`body`]: request bodies, within limits; [`coding`]: compressed ones
//! - [`slot`]: the part of the process behind a router, while it serves
//! - [`list`]: lists in pages
//! - [`front_page`]: the answer at the root path
//! - [`sse`]: answers that are streams of events
//! - [`answer`], [`problem`]: answers and refusals as JSON
//! - [`code`]: the codes of all refusals
//! - [`api`], [`openapi`]: routes with their descriptions, and the document that is made of these
//! - [`upgrade`]: requests for a WebSocket
//! - [`overload`]: refusals of requests that wait too long
//! - [`stamp`]: headers of all answers; [`packed`]: answers as gzip

pub mod answer;
pub mod api;
pub mod body;
mod client;
pub mod code;
pub mod coding;
pub mod front_page;
pub mod guard;
pub mod health;
pub mod list;
pub mod metrics;
pub mod openapi;
pub mod overload;
pub mod packed;
pub mod problem;
pub mod query;
pub mod router;
pub mod server;
pub mod slot;
pub mod sse;
pub mod stamp;
mod traced;
pub mod upgrade;

pub use api::{Api, Parameter, Path};
pub use axum::{Router, routing};
pub use code::Code;
pub use guard::{Access, Origins, Policy};
pub use health::{Health, State};
pub use problem::Problem;
pub use query::Query;
pub use router::router;
pub use server::{Draining, HttpServer};
pub use slot::Slot;
pub use stamp::stamped;
pub use upgrade::Upgrade;
