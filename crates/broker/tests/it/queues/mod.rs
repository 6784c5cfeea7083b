//! Queues over a journal, as front ends use them.

mod burying;
mod delivery;
mod faults;
mod faults_moving;
mod limits;
mod log_view;
mod moving;
mod over;
mod readers;
mod support;
