//! Policies: settings for all queues of a namespace whose names match a pattern. Of the policies that match a queue
//! one is in force, and one of those that operators made, which bounds it.
//!
//! ```text
//! declaration ─ policy, within the operator's ─ changes since ─ bounds of the operator's ─▶ settings in force
//! ```
//!
//! A policy is stored first. Then it is in the table, which new queues ask, and then it is put into force for the
//! queues that are there, some at a time.
//!
//! - `policy`: one policy, and its stored format
//! - `table`: the policies of a namespace, and the choice for a queue
//! - `changes`: policies that are made and deleted

mod changes;
mod policy;
mod table;

pub use changes::PolicyError;
pub use policy::{BadPolicy, NewPolicy, Policy, PolicyKind, PolicyScope};
pub use table::AppliedPolicies;
pub(super) use table::Policies;
