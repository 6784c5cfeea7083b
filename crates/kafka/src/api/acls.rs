//! `DescribeAcls`, `CreateAcls`, `DeleteAcls`: rules as Kafka's ACLs. Before there are users there are none.

use stafett_access::Rule;
use stafett_kafka_wire::messages::create_acls::{AclCreation, AclCreationResult};
use stafett_kafka_wire::messages::delete_acls::{
    DeleteAclsFilter, DeleteAclsFilterResult, DeleteAclsMatchingAcl,
};
use stafett_kafka_wire::messages::describe_acls::{AclDescription, DescribeAclsResource};
use stafett_kafka_wire::messages::{
    CreateAclsRequest, CreateAclsResponse, DeleteAclsRequest, DeleteAclsResponse, DescribeAclsRequest,
    DescribeAclsResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};

use crate::access_operation::{AccessOperation, Changed};
use crate::acl::{Acl, AclFilter};
use crate::call::Call;
use crate::context::{KafkaContext, RequestContext};
use crate::operation::{Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};

/// ACLs of one answer.
const ACLS_MAX: usize = 100_000;

fn is_disabled(context: &RequestContext) -> bool {
    context.shared.broker.access().directory().user_count() == 0
}

/// Returns the ACLs that a filter takes, up to a bound, and the number of rules that are no ACLs, or not
/// wholly.
fn chosen(shared: &KafkaContext, filter: &AclFilter) -> (Vec<Acl>, usize) {
    let mut left_out = 0;
    let chosen = shared.broker.access().directory().with_rules(|rules| {
        let acls = rules.iter().flat_map(|rule| {
            left_out += usize::from(!Acl::are_all_of(&rule));
            Acl::of_rule(&rule)
        });
        acls.filter(|acl| filter.takes(acl)).take(ACLS_MAX).collect()
    });
    (chosen, left_out)
}

/// Returns a note for an answer without an error. Kafka's tools do not show it.
fn note(chosen: &[Acl], left_out: usize) -> Option<Str> {
    if chosen.len() >= ACLS_MAX {
        return Some(Str::copy_from(&format!("These are the first {ACLS_MAX} ACLs.")));
    }
    let why = "with patterns, in namespaces, or about things without ACLs";
    (left_out > 0).then(|| Str::copy_from(&format!("Rules {why} are not shown: {left_out}.")))
}

pub(super) fn describe_acls(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let asked: DescribeAclsRequest = call.read(body)?;
    let filter = AclFilter {
        kind: asked.resource_type_filter,
        name: asked.resource_name_filter,
        form: asked.pattern_type_filter,
        principal: asked.principal_filter,
        host: asked.host_filter,
        operation: asked.operation,
        permission: asked.permission_type,
    };
    let failed = if is_disabled(context) {
        Some((
            ErrorCode::SecurityDisabled,
            "No Authorizer is configured on the broker",
        ))
    } else if !filter.is_valid() {
        Some((ErrorCode::InvalidRequest, "The AclBindingFilter is not known"))
    } else {
        None
    };
    if let Some((code, message)) = failed {
        let response = DescribeAclsResponse {
            error_code: context.shared.metrics.error(call.api, code),
            error_message: Some(message.into()),
            ..DescribeAclsResponse::default()
        };
        return Ok(call.answer::<DescribeAclsRequest>(&response)?.into());
    }
    Ok(PendingResponse::in_turn(move |context| {
        let (mut acls, left_out) = chosen(&context.shared, &filter);
        let note = note(&acls, left_out);
        acls.sort();
        let is_same = |a: &Acl, b: &Acl| (a.kind, a.form, &a.name) == (b.kind, b.form, &b.name);
        let resources = acls.chunk_by(is_same).filter_map(|acls| {
            let first = acls.first()?;
            Some(DescribeAclsResource {
                resource_type: first.kind,
                resource_name: first.name.clone(),
                pattern_type: first.form,
                acls: acls.iter().map(description).collect(),
            })
        });
        call.answer::<DescribeAclsRequest>(&DescribeAclsResponse {
            error_message: note,
            resources: resources.collect(),
            ..DescribeAclsResponse::default()
        })
    }))
}

fn description(acl: &Acl) -> AclDescription {
    AclDescription {
        principal: acl.principal.clone(),
        host: acl.host.clone(),
        operation: acl.operation,
        permission_type: acl.permission,
    }
}

pub(super) fn create_acls(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let asked: CreateAclsRequest = call.read(body)?;
    let is_disabled = is_disabled(context);
    let parsed = asked.creations.into_iter().map(|creation| {
        if is_disabled {
            return Err((ErrorCode::SecurityDisabled, "No Authorizer is configured."));
        }
        let rule = acl(creation).rule();
        rule.map_err(|why| (ErrorCode::InvalidRequest, why))
    });
    let parsed: Vec<Result<Rule, _>> = parsed.collect();
    let rules = parsed
        .iter()
        .filter_map(|rule| rule.as_ref().ok().cloned())
        .collect();
    let created = then(move |context: &RequestContext, done: Vec<Changed>| {
        let mut done = done.into_iter();
        let results = parsed.into_iter().map(|parsed| {
            let failed = match parsed {
                Err((code, why)) => Some((code, why.to_owned())),
                Ok(_) => done
                    .next()
                    .and_then(Result::err)
                    .map(|why| (code_of(&why), why.to_string())),
            };
            let (code, message) = failed.map_or((ErrorCode::None, None), |(code, why)| (code, Some(why)));
            AclCreationResult {
                error_code: context.shared.metrics.error(call.api, code),
                error_message: message.map(Into::into),
            }
        });
        call.answer::<CreateAclsRequest>(&CreateAclsResponse {
            throttle_time_ms: 0,
            results: results.collect(),
        })
    });
    let operation = Operation::Access(AccessOperation::AddRules(rules, created));
    Ok(PendingResponse::awaiting(operation, Pipelining::Barrier))
}

pub(super) fn code_of(error: &stafett_broker::AccessError) -> ErrorCode {
    use stafett_broker::AccessError;
    match error {
        AccessError::NotStored(_) | AccessError::Busy => ErrorCode::KafkaStorageError,
        AccessError::Name(_)
        | AccessError::Rule(_)
        | AccessError::Quota(_)
        | AccessError::Pattern(_)
        | AccessError::NoSuchUser(_)
        | AccessError::NoSuchToken(_)
        | AccessError::LastAdministrator(_)
        | AccessError::TooMany
        | AccessError::Password
        | AccessError::Description => ErrorCode::InvalidRequest,
    }
}

fn acl(creation: AclCreation) -> Acl {
    Acl {
        kind: creation.resource_type,
        name: creation.resource_name,
        form: creation.resource_pattern_type,
        principal: creation.principal,
        host: creation.host,
        operation: creation.operation,
        permission: creation.permission_type,
    }
}

pub(super) fn delete_acls(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let asked: DeleteAclsRequest = call.read(body)?;
    let is_disabled = is_disabled(context);
    let found: Vec<Result<Vec<Acl>, (ErrorCode, &str)>> = asked
        .filters
        .into_iter()
        .map(|asked| {
            let filter = filter(asked);
            if is_disabled {
                Err((ErrorCode::SecurityDisabled, "No Authorizer is configured."))
            } else if !filter.is_valid() {
                Err((ErrorCode::InvalidRequest, "The AclBindingFilter is not known"))
            } else {
                Ok(chosen(&context.shared, &filter).0)
            }
        })
        .collect();
    let acls = found.iter().flatten().flatten();
    let rules = acls.filter_map(|acl| acl.rule().ok()).collect();
    let deleted = then(move |context: &RequestContext, done: Vec<Changed>| {
        let failed = done.into_iter().find_map(Result::err);
        let failed = failed.map(|why| (code_of(&why), why.to_string()));
        let results = found.into_iter().map(|found| {
            let (code, message, acls) = match (found, &failed) {
                (Err((code, why)), _) => (code, Some(why.to_owned()), Vec::new()),
                (Ok(_), Some((code, why))) => (*code, Some(why.clone()), Vec::new()),
                (Ok(acls), None) => (ErrorCode::None, None, acls),
            };
            DeleteAclsFilterResult {
                error_code: context.shared.metrics.error(call.api, code),
                error_message: message.map(Into::into),
                matching_acls: acls.into_iter().map(matching).collect(),
            }
        });
        call.answer::<DeleteAclsRequest>(&DeleteAclsResponse {
            throttle_time_ms: 0,
            filter_results: results.collect(),
        })
    });
    let operation = Operation::Access(AccessOperation::RemoveRules(rules, deleted));
    Ok(PendingResponse::awaiting(operation, Pipelining::Barrier))
}

fn filter(asked: DeleteAclsFilter) -> AclFilter {
    AclFilter {
        kind: asked.resource_type_filter,
        name: asked.resource_name_filter,
        form: asked.pattern_type_filter,
        principal: asked.principal_filter,
        host: asked.host_filter,
        operation: asked.operation,
        permission: asked.permission_type,
    }
}

fn matching(acl: Acl) -> DeleteAclsMatchingAcl {
    DeleteAclsMatchingAcl {
        error_code: 0,
        error_message: None,
        resource_type: acl.kind,
        resource_name: acl.name,
        pattern_type: acl.form,
        principal: acl.principal,
        host: acl.host,
        operation: acl.operation,
        permission_type: acl.permission,
    }
}
