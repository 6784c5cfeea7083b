//! What the requests about groups have in common: Kafka's words for states, ids, hosts.

use std::sync::Arc;

use stafett_groups::GroupState;
use stafett_kafka_wire::Str;

use crate::session::Context;

/// What may be done with a group where nobody is asked who they are, as bits of the numbers of Kafka's
/// `AclOperation`: read, delete, describe, describe and alter configs.
pub(super) const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

/// Kafka's word for what a group is at.
pub(super) fn state_name(state: GroupState) -> &'static str {
    match state.name {
        "empty" => "Empty",
        "preparing" => "PreparingRebalance",
        "completing" => "CompletingRebalance",
        "stable" => "Stable",
        "assigning" => "Assigning",
        "reconciling" => "Reconciling",
        _ => "Unknown",
    }
}

/// An id that no member has had. As in Kafka, people can see in it whose it is.
pub(super) fn new_member_id(name: &str) -> Arc<str> {
    format!("{name}-{}", uuid::Uuid::new_v4()).into()
}

/// Where a client is, as Kafka writes it.
pub(super) fn client_host(context: &Context) -> Box<str> {
    format!("/{}", context.peer.ip().to_canonical()).into()
}

/// A copy of a text that may not be there.
pub(super) fn text(text: Option<&str>) -> Str {
    text.map(Str::copy_from).unwrap_or_default()
}
