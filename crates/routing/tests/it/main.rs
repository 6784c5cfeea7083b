//! Tests of the public interface of the tables, against naive models and against another broker's answers.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod naive;
mod peer;
