//! The program `stafett-lab` with the broker `stafett` beside it.
#![cfg(test)]

mod agents;
mod faults;
mod machines;
mod run;
mod serve;
mod sessions;
mod short;
