//! Sinks that the broker keeps: the desk behind the API, and the process that runs them.
//!
//! ```text
//! PUT /v1/sinks/NAME ─▶ stored ─▶ supervisor ──lines on a pipe──▶ runner (`stafett sink runner`)
//! GET /v1/sinks, /metrics ◀── desk ◀──────────states, each second──┘
//! ```
//!
//! Parsing, compressing and waiting for stores is the work of another process, so that none of it is felt
//! by producers, and a fault of it takes nothing along. The runner is started with the first sink, and again
//! when it dies. It ends with the pipe, and so with the broker however that ends.

mod desk;
mod metrics;
mod process;
mod supervisor;
pub(crate) mod words;

pub(crate) use desk::SinksHere;
pub(crate) use metrics::{Sample, encode, shown};
pub(crate) use supervisor::{END_MAX, Supervisor};
