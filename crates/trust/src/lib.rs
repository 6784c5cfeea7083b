//! TLS of connections that the broker opens to databases and stores. Certificates are always checked.
//!
//! - `authorities`: whose certificates are good
//! - `postgres`: sessions with PostgreSQL
//!
//! This crate knows nothing of the bytes on a connection.

mod authorities;
mod postgres;

pub use authorities::{connect, connector, settings};
pub use postgres::PostgresTls;
