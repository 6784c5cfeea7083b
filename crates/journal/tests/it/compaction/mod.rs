//! Compaction by key, against a naive model, and by single cases.

mod bench;
mod cases;
mod faults;
mod lag;
mod model;
