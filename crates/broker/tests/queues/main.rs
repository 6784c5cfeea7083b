//! Queues over a journal, as front ends use them.

mod delivery;
mod faults;
mod limits;
mod support;
