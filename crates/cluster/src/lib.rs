//! A journal that several nodes own in turn.
//!
//! The journal of a cluster is a *cell*, or there are several of them: at each time one node owns a cell. Its
//! files are kept in a database.
//! [`SharedStorage`] is the storage under the engine of `journal`: a sync is a commit in the database, and a
//! commit of a former owner inserts nothing.
//!
//! - `database`: the duties of the database, and the reason why they exclude a former owner
//! - `objects`: the duties of the object store, and objects in a bucket or a folder
//! - `opening`: segments that are fetched before recovery reads them; `lost`: objects that cannot be read
//! - `storage`, `file`, `remote`, `cache`: files over both, with copies in a local folder
//! - `uplink`, `commits`, `transfer`: the owner's way into both
//! - `keeping`, `agreement`: segments that move to the object store, garbage, and the agreement of both
//! - `ownership`: claims, and the lease that says when one is tried
//! - `nodes`: the table of nodes, and which of them live; `peer`: the first bytes between two of them,
//!   `peer_tls` the encryption below, `secrets` the text that all nodes share
//! - `postgres`: the database as PostgreSQL
//! - `fake`: database and object store in memory, behind the feature `testing`
//!
//! This crate knows nothing of brokers, topics or protocols.

mod agreement;
mod belonging;
mod cache;
mod commits;
mod database;
#[cfg(any(test, feature = "testing"))]
pub mod fake;
mod file;
mod keeping;
mod lost;
mod metrics;
mod nodes;
mod objects;
mod opening;
mod ownership;
mod peer;
mod peer_tls;
mod postgres;
mod remote;
mod secrets;
mod settings;
mod storage;
mod transfer;
mod uplink;

pub use agreement::{Agreement, agreement};
pub use belonging::check_store;
pub use database::{
    BLOCK_BYTES, Body, ChangedFile, Database, DatabaseError, Kept, Link, Nonce, Owner, Publication,
    ROW_BYTES_MAX, Reference, Row, nonce,
};
pub use metrics::Metrics;
pub use nodes::{Directory, Entry, Key, Node, NodeFacts, PEER, Registry, Roll, Sightings, View, surplus};
pub use objects::{
    BucketObjects, FolderObjects, Location, LocationError, OBJECT_BYTES_MAX, Objects, ObjectsError, Part,
    open_objects,
};
pub use ownership::{Candidate, Claim, Lease, Look, Tenure, uptime};
pub use peer::{PeerError, Wish, answer, ask, hear};
pub use peer_tls::{Binding, NodeTls};
pub use postgres::{
    AddressError, DatabaseFacts, Postgres, PostgresDirectory, check_address, without_password,
};
pub use secrets::{Secrets, SecretsError};
pub use settings::{Clock, Settings};
/// The place of a login.
pub use stafett_objects::secret::Secret as Login;
pub use storage::{Cutoff, SharedStorage};
