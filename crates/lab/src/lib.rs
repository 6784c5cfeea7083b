//! The lab: the same workload on several systems, measured and drawn.

pub mod factorial;
pub mod report;
pub mod statistics;
