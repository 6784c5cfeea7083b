//! The HTTP listener: `/health`, `/metrics`, a page that describes the process, and merged routers. Also the
//! kit from which these routers are made.
//!
//! It must not know the merged routers' purpose, nor any message protocol. Accepting, the connection limit
//! and graceful shutdown belong to `stafett-net`; this crate has the limits that HTTP itself needs.
//!
//! - [`health`]: the state of the process, as one word
//! - [`metrics`]: the registry as text
//! - [`router`]: the routes that are always present
//! - [`server`]: one connection
//!
//! The kit:
//!
//! - [`guard`]: rejects requests from web pages
//! - [`query`]: parameters after the `?` of a request
//! - [`body`]: request bodies, within limits
//! - [`slot`]: the part of the process behind a router, while it serves
//! - [`list`]: lists in pages
//! - [`answer`], [`problem`]: answers and refusals as JSON

pub mod answer;
pub mod body;
pub mod guard;
pub mod health;
pub mod list;
pub mod metrics;
pub mod problem;
pub mod query;
pub mod router;
pub mod server;
pub mod slot;

pub use axum::{Router, routing};
pub use guard::{Origins, Policy};
pub use health::{Health, State};
pub use problem::Problem;
pub use query::Query;
pub use router::{Link, router};
pub use server::HttpServer;
pub use slot::Slot;
