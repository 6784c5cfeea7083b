//! Stores and receivers over HTTP: their addresses, which of them may be reached, and connections to them.

mod address;
mod link;

pub use address::{Address, Allowed};
pub use link::{Answer, Link};
