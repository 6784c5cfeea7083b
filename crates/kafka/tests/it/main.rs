//! The front end from the client's side: over a socket, in the protocol.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "what is missing or too large fails the test"
)]

mod administration;
mod allocations;
mod answers;
mod by_handler;
mod compaction;
mod consumer_groups;
mod fetch;
mod fetch_sessions;
mod flushes;
mod group_offsets;
mod groups;
mod held_heartbeats;
mod hostile;
mod list_offsets;
mod offsets_topic;
mod peer;
mod pipelining;
mod produce;
mod quotas;
mod rights;
mod served;
mod share_groups;
mod topics;
mod transactions;
