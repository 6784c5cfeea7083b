//! Measurements besides messages: processes, the network, and time itself.
//!
//! - [`process`]: the kernel's figures of a process
//! - [`network`]: throughput and round trip without a broker
//! - `space`: free space of the disk that systems store on
//! - [`ceiling`]: rates of clients against a stub
//! - [`timer`]: waits that end on time

pub mod ceiling;
pub mod network;
pub mod process;
pub(crate) mod space;
pub mod timer;
