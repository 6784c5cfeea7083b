//! Policies and operator policies, in RabbitMQ's form ([`super::policy_definition`] has their definitions).

use std::sync::Arc;

use axum::http::Method;
use serde_json::{Map, Value, json};
use stafett_access::{Action, Resource};
use stafett_messaging::queues::{AppliedPolicies, BadPolicy, NewPolicy, Policy, PolicyError, PolicyKind};
use stafett_model::Namespace;

use super::call::{Call, Fields, changed, short};
use super::list;
use super::policy_definition::{self, PolicyDefinition};
use super::refusal::{Answered, Refusal};
use crate::operation::record;

/// Component of the parameters that are operator policies, in definitions.
pub(super) const COMPONENT: &str = "operator_policy";

/// Answers the paths of policies. `None` for others.
pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Option<Answered> {
    let kind = match path.first() {
        Some(&"policies") => PolicyKind::User,
        Some(&"operator-policies") => PolicyKind::Operator,
        _ => return None,
    };
    Some(match path {
        [_] => call.only_get(|| {
            let vhosts = call.vhosts(None)?;
            list::values(call, all(call, kind, &vhosts))
        }),
        [_, vhost] => call.only_get(|| {
            let vhosts = call.vhosts(Some(vhost))?;
            list::values(call, all(call, kind, &vhosts))
        }),
        [_, vhost, name] => policy(call, kind, vhost, name).await,
        _ => return None,
    })
}

async fn policy(call: &Call, kind: PolicyKind, vhost: &str, name: &str) -> Answered {
    let method = call.allow(&[Method::GET, Method::PUT, Method::DELETE])?.clone();
    let known = call.vhost(vhost);
    if method == Method::PUT {
        let vhost = known.ok_or_else(Refusal::no_vhost)?;
        return put(call, kind, &vhost, name, &call.fields()?).await.map(changed);
    }
    let vhost = known.ok_or_else(Refusal::no_object)?;
    if method == Method::GET {
        let policy = call.context.queues().policy(kind, &vhost, name);
        let policy = policy.ok_or_else(Refusal::no_object)?;
        return list::object(call, Value::Object(shown(&vhost, &policy)));
    }
    let deleted = call.context.queues().delete_policy(kind, &vhost, name).await;
    deleted.map_err(|error| refused(kind, &error))?;
    record(&call.user.caller, "policy.deleted", name, &vhost);
    Ok(changed(false))
}

/// Makes or replaces a policy. True if it is new.
pub(super) async fn put(
    call: &Call,
    kind: PolicyKind,
    vhost: &Namespace,
    name: &str,
    fields: &Fields,
) -> Result<bool, Refusal> {
    let new = policy_of(kind, name, fields)?;
    check_dead_letters(call, vhost, &new)?;
    let put = call.context.queues().put_policy(kind, vhost, new).await;
    let is_new = put.map_err(|error| refused(kind, &error))?;
    let done = if is_new { "policy.made" } else { "policy.changed" };
    record(&call.user.caller, done, name, vhost);
    Ok(is_new)
}

/// Reads a policy.
fn policy_of(kind: PolicyKind, name: &str, fields: &Fields) -> Result<NewPolicy, Refusal> {
    fields.require(&["pattern", "definition"])?;
    let pattern = fields.get("pattern").unwrap_or(&Value::Null);
    let Value::String(pattern) = pattern else {
        let shown = policy_definition::term(pattern);
        return Err(invalid(
            kind,
            &format!("pattern should be a binary but was {shown}"),
        ));
    };
    let PolicyDefinition {
        scope,
        settings,
        priority,
        stored,
    } = PolicyDefinition::read(kind, fields).map_err(|why| invalid(kind, &why))?;
    Ok(NewPolicy {
        name: short(name, "name")?.into(),
        pattern: pattern.as_str().into(),
        priority,
        scope,
        settings,
        definition: stored,
    })
}

/// Refuses a policy whose dead letters would come into a stored topic that its maker may not write to. Without a
/// routing key any topic is possible.
fn check_dead_letters(call: &Call, vhost: &Namespace, new: &NewPolicy) -> Result<(), Refusal> {
    let caller = &call.user.caller;
    let is_default = new
        .settings
        .dead_letter_exchange
        .as_ref()
        .is_some_and(|name| name.is_empty());
    if !is_default || caller.is_unrestricted() {
        return Ok(());
    }
    let key = new.settings.dead_letter_key.as_deref().unwrap_or_default();
    let is_queue = call.context.queues().get(vhost, key).is_some();
    let topic = call.context.broker.topics().in_namespace(vhost, key);
    // A topic that was declared as a stream has the rights of queues.
    let topic = topic.filter(|topic| !is_queue && topic.settings.declared.is_none());
    let name = match &topic {
        Some(topic) => &*topic.name,
        None if key.is_empty() => "",
        None => return Ok(()),
    };
    let checked = caller.check(Action::Write, &Resource::topic(name));
    checked.map_err(|_| Refusal::not_authorised("User not authorised to write to the topic of dead letters"))
}

/// Refuses a policy as RabbitMQ does, which shows the values of policies for pages, and not those of operator policies.
fn invalid(kind: PolicyKind, why: &str) -> Refusal {
    let why = match kind {
        PolicyKind::User => why.replace('<', "&lt;").replace('>', "&gt;"),
        PolicyKind::Operator => why.to_owned(),
    };
    Refusal::bad_request(format!("Validation failed\n\n{why}\n"))
}

fn refused(kind: PolicyKind, error: &PolicyError) -> Refusal {
    match error {
        PolicyError::NoSuchNamespace => Refusal::no_vhost(),
        PolicyError::NoSuchPolicy => Refusal::no_object(),
        PolicyError::NotStored(_) => Refusal::unavailable(error.to_string()),
        PolicyError::Bad(BadPolicy::Pattern(bad)) => invalid(
            kind,
            &format!("pattern should be regular expression but is invalid: {}", bad.why),
        ),
        PolicyError::Bad(BadPolicy::Name | BadPolicy::Definition) | PolicyError::TooMany => {
            invalid(kind, &error.to_string())
        }
    }
}

/// Returns the policies of virtual hosts.
pub(super) fn all(call: &Call, kind: PolicyKind, vhosts: &[Namespace]) -> Vec<Value> {
    let all = call.context.queues().policies(kind).into_iter();
    let wanted = all.filter(|(vhost, _)| vhosts.contains(vhost));
    wanted
        .map(|(vhost, policy)| Value::Object(shown(&vhost, &policy)))
        .collect()
}

fn shown(vhost: &Namespace, policy: &Policy) -> Map<String, Value> {
    let (apply_to, definition) = policy_definition::shown(&policy.new);
    let fields = json!({
        "vhost": vhost.as_str(),
        "name": &*policy.new.name,
        "pattern": &*policy.new.pattern,
        "apply-to": apply_to,
        "definition": definition,
        "priority": policy.new.priority,
    });
    super::values::fields(fields)
}

/// Returns the operator policies of virtual hosts as parameters, for an export.
pub(super) fn parameters(call: &Call, vhosts: &[Namespace]) -> Vec<Map<String, Value>> {
    let all = call.context.queues().policies(PolicyKind::Operator).into_iter();
    let wanted = all.filter(|(vhost, _)| vhosts.contains(vhost));
    let parameter = |(vhost, policy): (Namespace, Arc<Policy>)| {
        let mut value = shown(&vhost, &policy);
        let (name, vhost) = (value.remove("name"), value.remove("vhost"));
        let fields = [
            ("component", Some(json!(COMPONENT))),
            ("name", name),
            ("vhost", vhost),
            ("value", Some(Value::Object(value))),
        ];
        let fields = fields.into_iter();
        fields
            .filter_map(|(field, value)| Some((field.to_owned(), value?)))
            .collect()
    };
    wanted.map(parameter).collect()
}

/// Returns the fields of a queue that name its policies.
pub(super) fn of_queue(applied: &AppliedPolicies) -> [(&'static str, Value); 3] {
    let name = |policy: &Option<Arc<Policy>>| json!(policy.as_ref().map(|policy| &*policy.new.name));
    let [user, operator] = [&applied.user, &applied.operator].map(|policy| {
        let (_, definition) = policy_definition::shown(&policy.as_ref()?.new);
        definition.as_object().cloned()
    });
    let effective = policy_definition::effective(user.unwrap_or_default(), operator.unwrap_or_default());
    [
        ("policy", name(&applied.user)),
        ("operator_policy", name(&applied.operator)),
        ("effective_policy_definition", Value::Object(effective)),
    ]
}
