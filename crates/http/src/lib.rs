//! The HTTP listener: `/health`, `/metrics`, a page that says what this is, and whatever routers are merged
//! in.
//!
//! It must not know what is behind those routers, nor any message protocol. Accepting, the number of
//! connections and the graceful end are the business of `stafett-net`; here are the limits that HTTP itself
//! needs.
//!
//! - [`health`]: the state of the process, as one word
//! - [`metrics`]: the registry as text
//! - [`router`]: the routes that are always there
//! - [`server`]: one connection

pub mod health;
pub mod metrics;
pub mod router;
pub mod server;

pub use axum::{Router, routing};
pub use health::{Health, State};
pub use router::{Link, router};
pub use server::HttpServer;
