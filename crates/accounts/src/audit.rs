//! Log lines about changes of access, logins and refusals, with their callers. No line has a password, a
//! token or a verifier.

use std::net::IpAddr;

use stafett_access::{Caller, Denied, Entity, Limited, Limits, Rates, Rule, TopicPermission};

/// Target of these lines.
pub const AUDIT: &str = "audit";

/// Notes a change of a user or token.
pub(super) fn change(caller: &Caller, action: &'static str, name: &str, details: &str) {
    let (by, from) = (caller.name(), caller.peer());
    let kind = action.split('.').next();
    tracing::info!(target: AUDIT, by, %from, action, result = "done", kind, name, details, "changed");
}

pub(super) fn rule(caller: &Caller, rule: &Rule) {
    let (by, from) = (caller.name(), caller.peer());
    let action = if rule.actions.is_empty() {
        "rule.deleted"
    } else {
        "rule.set"
    };
    tracing::info!(target: AUDIT, by, %from, action, result = "done", details = ?rule, "changed");
}

pub(super) fn quota(caller: &Caller, entity: &Entity, rates: &Rates) {
    let (by, from) = (caller.name(), caller.peer());
    let action = if rates.is_empty() {
        "quota.deleted"
    } else {
        "quota.set"
    };
    let details = format!("{entity}: {rates:?} per second");
    tracing::info!(target: AUDIT, by, %from, action, result = "done", details, "changed");
}

pub(super) fn limits(caller: &Caller, of: &Limited, limits: &Limits) {
    let (by, from) = (caller.name(), caller.peer());
    let (kind, name) = match of {
        Limited::Namespace(name) => ("namespace", name),
        Limited::User(name) => ("user", name),
    };
    let action = if limits.is_empty() {
        "limits.deleted"
    } else {
        "limits.set"
    };
    tracing::info!(target: AUDIT, by, %from, action, result = "done", kind, name, details = ?limits, "changed");
}

pub(super) fn topic_permission(caller: &Caller, action: &'static str, permission: &TopicPermission) {
    let (by, from) = (caller.name(), caller.peer());
    let (namespace, name) = (&permission.namespace, &permission.exchange);
    tracing::info!(target: AUDIT, by, %from, action, result = "done", kind = "exchange", namespace, name,
        details = ?permission, "changed");
}

/// Notes a login. Called once for a user that logs in again and again.
pub(super) fn login(by: &str, from: IpAddr) {
    tracing::info!(target: AUDIT, by, %from, action = "login", result = "done", "logged in");
}

pub(super) fn failed_login(by: &str, from: IpAddr) {
    tracing::warn!(target: AUDIT, by, %from, action = "login", result = "refused", "login refused");
}

/// Notes a refused action. A caller that repeats itself is noted once until something changes.
pub(super) fn refusal(caller: &Caller, denied: &Denied) {
    let (by, from) = (&denied.user, caller.peer());
    let (action, kind) = (denied.action.word(), denied.kind.word());
    let (namespace, name) = (&denied.namespace, &denied.name);
    tracing::warn!(target: AUDIT, by, %from, action, result = "refused", kind, namespace, name, "refused");
}
