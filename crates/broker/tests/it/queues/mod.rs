//! Queues over a journal, as front ends use them.

mod delivery;
mod faults;
mod limits;
mod log_view;
mod over;
mod readers;
mod support;
