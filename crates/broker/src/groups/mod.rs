//! Groups of consumers.

pub mod consumer;
