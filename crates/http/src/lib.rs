//! The HTTP listener: `/health`, `/metrics`, a page that describes the process, and merged routers.
//!
//! It must not know the merged routers' purpose, nor any message protocol. Accepting, the connection limit
//! and graceful shutdown belong to `stafett-net`; this crate has the limits that HTTP itself needs.
//!
//! - [`health`]: the state of the process, as one word
//! - [`metrics`]: the registry as text
//! - [`router`]: the routes that are always present
//! - [`server`]: one connection

pub mod health;
pub mod metrics;
pub mod router;
pub mod server;

pub use axum::{Router, routing};
pub use health::{Health, State};
pub use router::{Link, router};
pub use server::HttpServer;
