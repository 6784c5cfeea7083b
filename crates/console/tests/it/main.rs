//! The built console: served rightly, small, and made of the sources that are there.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod built;
mod served;
