//! A journal that several nodes own in turn.
//!
//! The journal of a cluster is a *cell*: at each time one node owns it. Its files are kept in a database.
//! [`SharedStorage`] is the storage under the engine of `journal`: a sync is a commit in the database, and a
//! commit of a former owner inserts nothing.
//!
//! - [`database`]: what the database has to do, and why that excludes a former owner
//! - [`storage`], `file`, `uplink`: files over it, with copies in a local folder
//! - [`ownership`]: claims, and the lease that says when one is tried
//! - [`postgres`]: the database as PostgreSQL
//! - [`fake`]: the same in memory, behind the feature `testing`
//!
//! This crate knows nothing of brokers, topics or protocols.

pub mod database;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
mod file;
pub mod ownership;
pub mod postgres;
pub mod storage;
mod uplink;

pub use database::{Database, DatabaseError, Nonce};
pub use ownership::{Candidate, Claim, Lease, Look};
pub use postgres::Postgres;
pub use storage::SharedStorage;
