//! Queues over a journal, as front ends use them.

mod delayed;
mod delivery;
mod faults;
mod limits;
mod log_view;
mod support;
