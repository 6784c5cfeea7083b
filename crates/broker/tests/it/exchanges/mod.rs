//! Exchanges and bindings over a journal, and publishing through them.

mod compacted;
mod definitions;
mod delayed;
mod faults;
mod faults_delayed;
mod faults_deletion;
mod filters;
mod publish;
mod races;
mod steps;
mod support;
mod topics;
