//! The broker: topics, groups, messaging and live topics over one journal, started and stopped together.
//!
//! It knows no protocol and no connection.
//!
//! - `broker`: start, stop, and the parts
//! - `topic_changes`: deletion and growth of topics, with their effects on other parts
//! - `group_changes`: deletion of groups
//! - `namespaces`: deletion of namespaces
//! - `overrides`: settings changed at run time, except those of single topics
//! - `history`: the last hour of everything that counts, and of the node
//! - `sinks`: definitions of sinks, for the programs that run them
//! - `live_logs`: stored topics behind live topics

mod app_results;
mod broker;
mod group_changes;
mod history;
mod live_logs;
mod namespace_limits;
mod namespaces;
mod overrides;
mod sinks;
mod topic_changes;

pub use broker::{Broker, BrokerSettings, FrontEndHooks, StartError};
pub use history::{Histories, NODE_SERIES, NodeReading, NodeSamples, NodeSeries};
pub use overrides::{ReadGroupSettings, Scope};
pub use sinks::{SINKS_MAX, SinkError, Sinks, StoredSink};
pub use stafett_accounts::{
    AUDIT, AccessControl, AccessError, AuditTrail, BearerError, BearerSettings, ConnectionQuota, LoginError,
    NewQuota, NewToken, Proof, ScramLogin,
};
pub use stafett_counters::{STEP_MS, STEPS_MAX, Sample, Timeline};
pub use topic_changes::FirstCellFacts;
