//! Queues over a journal, as front ends use them.

mod burying;
mod delivery;
mod ends;
mod faults;
mod faults_moving;
mod full_disk;
mod limits;
mod log_view;
mod lost_logs;
mod marks;
mod moving;
mod over;
mod readers;
mod support;
