//! The codec as others use it, against itself and against another implementation.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod round_trips;
mod vectors;
