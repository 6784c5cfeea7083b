//! What is measured besides messages: processes, the network, and time itself.
//!
//! - [`process`]: what the kernel says of a process
//! - [`network`]: throughput and round trip without a broker
//! - `space`: what is left of the disk that systems store on
//! - [`ceiling`]: what clients reach against a stub
//! - [`timer`]: waits that end on time

pub mod ceiling;
pub mod network;
pub mod process;
pub(crate) mod space;
pub mod timer;
