//! Tests of the storage that nodes own in turn: the journal's conformance suite on it, faults at each call of
//! the database, former owners that go on, and the same over PostgreSQL where it is installed.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by panicking, in its helpers too"
)]
#![allow(unreachable_pub, reason = "a test's crate has no outside")]

#[macro_use]
#[path = "../../../journal/tests/it/conformance/mod.rs"]
#[allow(dead_code, reason = "the providers of another crate")]
mod conformance;
#[path = "../../../sinks/tests/it/between.rs"]
#[allow(dead_code, reason = "another crate's tests need more of it")]
mod between;
#[path = "../../../sinks/tests/it/moto.rs"]
mod moto;
#[path = "../../../sinks/tests/it/peer.rs"]
#[allow(dead_code, reason = "another crate's tests need more of it")]
mod peer;
#[path = "../../../sinks/tests/it/server.rs"]
#[allow(dead_code, reason = "another crate's tests need more of it")]
mod server;
#[path = "../../../journal/tests/it/support.rs"]
#[allow(dead_code, reason = "another crate's tests need more of it")]
mod support;

mod faults;
mod former_owners;
mod leases;
mod lost;
mod node;
mod nodes;
mod objects;
mod on_postgres;
mod on_s3;
mod opening;
mod seeds;

mod providers {
    on_provider!(shared);
    on_provider!(shared_with_small_segments);
    on_provider!(shared_in_objects);
    on_provider!(shared_with_some_objects);
}
