//! Shared by the group APIs: Kafka's names for states, member ids, hosts.

use std::sync::Arc;

use stafett_groups::GroupState;
use stafett_kafka_wire::Str;

use crate::context::RequestContext;

/// Message about a group with topics that the caller may not see.
pub(super) const HIDDEN_TOPICS: &str =
    "The group has described topic(s) that the client is not authorized to describe.";

/// Operations on a group without access control, as bits of the numbers of Kafka's `AclOperation`: read,
/// delete, describe, describe and alter configs.
pub(super) const GROUP_OPERATIONS: i32 = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11;

/// Returns Kafka's name of a group state.
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

/// Returns a new member id. As in Kafka, it begins with the name of its client or instance.
pub(super) fn new_member_id(name: &str) -> Arc<str> {
    format!("{name}-{}", uuid::Uuid::new_v4()).into()
}

/// Formats a client's address as Kafka does.
pub(super) fn client_host(context: &RequestContext) -> Box<str> {
    format!("/{}", context.entry.peer.ip().to_canonical()).into()
}

/// True if the text is empty after trimming as in Java: blanks and control characters.
pub(super) fn is_blank(text: &str) -> bool {
    text.bytes().all(|byte| byte <= b' ')
}

/// Copies an optional text; empty if there is none.
pub(super) fn text(text: Option<&str>) -> Str {
    text.map(Str::copy_from).unwrap_or_default()
}
