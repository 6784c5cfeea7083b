//! The front end as its clients see it: over a socket, in the protocol's own words.

mod allocations;
mod fetch;
mod fetch_sessions;
mod hostile;
mod list_offsets;
mod peer;
mod pipelining;
mod produce;
mod topics;
