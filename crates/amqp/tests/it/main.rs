//! The front end over a broker, tested with frames.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod again;
mod as_rabbitmq;
mod bearer;
mod blocked;
mod bound;
mod changed;
mod compacted;
mod deleted_hosts;
mod ends;
mod filtered;
mod flood;
mod global_prefetch;
mod gone;
mod half_messages;
mod heartbeats;
mod limits;
mod management;
mod operator;
mod rejected;
mod support;
