//! Queues over a journal, used as by front ends.

mod bounds;
mod broken_receives;
mod burying;
mod changing;
mod delivery;
mod ends;
mod faults;
mod faults_committing;
mod faults_moving;
mod faults_receiving;
mod full_disk;
mod limits;
mod log_view;
mod lost_logs;
mod marks;
mod moving;
mod over;
mod policies;
mod readers;
mod receiving;
mod selecting;
mod support;
