//! A journal that several nodes own in turn.
//!
//! The journal of a cluster is a *cell*: at each time one node owns it. Its files are kept in a database.
//! [`SharedStorage`] is the storage under the engine of `journal`: a sync is a commit in the database, and a
//! commit of a former owner inserts nothing.
//!
//! - `database`: the duties of the database, and the reason why they exclude a former owner
//! - `storage`, `file`, `uplink`: files over it, with copies in a local folder
//! - `ownership`: claims, and the lease that says when one is tried
//! - `nodes`: the table of nodes, and which of them live; `peer`: the first bytes between two of them
//! - `postgres`: the database as PostgreSQL
//! - `fake`: the same in memory, behind the feature `testing`
//!
//! This crate knows nothing of brokers, topics or protocols.

mod database;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
mod file;
mod nodes;
mod ownership;
mod peer;
mod postgres;
mod storage;
mod uplink;

pub use database::{
    BLOCK_BYTES, ChangedFile, Database, DatabaseError, Kept, Link, Nonce, Owner, Publication, ROW_BYTES_MAX,
    Row, nonce,
};
pub use nodes::{Directory, Entry, Key, Node, NodeFacts, Registry, Roll, Sightings, View};
pub use ownership::{Candidate, Claim, Lease, Look, uptime};
pub use peer::{PeerError, Wish, answer, ask, hear};
pub use postgres::{
    AddressError, DatabaseFacts, Postgres, PostgresDirectory, check_address, without_password,
};
pub use storage::{Cutoff, SharedStorage};
