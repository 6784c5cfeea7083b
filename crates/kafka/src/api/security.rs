//! Security APIs of a broker without authentication: no ACLs, no credentials, no tokens.

use std::collections::BTreeMap;

use stafett_kafka_wire::messages::alter_user_scram_credentials::AlterUserScramCredentialsResult;
use stafett_kafka_wire::messages::create_acls::AclCreationResult;
use stafett_kafka_wire::messages::delete_acls::DeleteAclsFilterResult;
use stafett_kafka_wire::messages::describe_user_scram_credentials::DescribeUserScramCredentialsResult;
use stafett_kafka_wire::messages::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, CreateAclsRequest,
    CreateAclsResponse, CreateDelegationTokenRequest, CreateDelegationTokenResponse, DeleteAclsRequest,
    DeleteAclsResponse, DescribeAclsRequest, DescribeAclsResponse, DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse, DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse, ExpireDelegationTokenRequest, ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest, RenewDelegationTokenResponse, SaslAuthenticateRequest,
    SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};

use crate::call::Call;
use crate::context::RequestContext;
use crate::response_queue::HandlerResult;

/// No time.
const NONE: i64 = -1;

pub(super) fn describe_acls(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let _: DescribeAclsRequest = call.read(body)?;
    let response = DescribeAclsResponse {
        error_code: context
            .shared
            .metrics
            .error(call.api, ErrorCode::SecurityDisabled),
        error_message: Some("No Authorizer is configured on the broker".into()),
        ..DescribeAclsResponse::default()
    };
    Ok(call.answer::<DescribeAclsRequest>(&response)?.into())
}

pub(super) fn create_acls(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: CreateAclsRequest = call.read(body)?;
    let results = request.creations.iter().map(|_| AclCreationResult {
        error_code: context
            .shared
            .metrics
            .error(call.api, ErrorCode::SecurityDisabled),
        error_message: Some("No Authorizer is configured.".into()),
    });
    let response = CreateAclsResponse {
        throttle_time_ms: 0,
        results: results.collect(),
    };
    Ok(call.answer::<CreateAclsRequest>(&response)?.into())
}

pub(super) fn delete_acls(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: DeleteAclsRequest = call.read(body)?;
    let results = request.filters.iter().map(|_| DeleteAclsFilterResult {
        error_code: context
            .shared
            .metrics
            .error(call.api, ErrorCode::SecurityDisabled),
        error_message: Some("No Authorizer is configured.".into()),
        matching_acls: Vec::new(),
    });
    let response = DeleteAclsResponse {
        throttle_time_ms: 0,
        filter_results: results.collect(),
    };
    Ok(call.answer::<DeleteAclsRequest>(&response)?.into())
}

pub(super) fn describe_user_scram_credentials(
    context: &RequestContext,
    call: Call,
    body: Decoder,
) -> HandlerResult {
    let request: DescribeUserScramCredentialsRequest = call.read(body)?;
    let mut times: BTreeMap<Str, usize> = BTreeMap::new();
    for user in request.users.unwrap_or_default() {
        *times.entry(user.name).or_default() += 1;
    }
    let results = times.into_iter().map(|(user, times)| {
        let (code, message) = if times == 1 {
            let message = format!("Attempt to describe a user credential that does not exist: {user}");
            (ErrorCode::ResourceNotFound, message)
        } else {
            let message = format!(
                "Cannot describe SCRAM credentials for the same user twice in a single request: {user}"
            );
            (ErrorCode::DuplicateResource, message)
        };
        DescribeUserScramCredentialsResult {
            user,
            error_code: context.shared.metrics.error(call.api, code),
            error_message: Some(message.into()),
            credential_infos: Vec::new(),
        }
    });
    let response = DescribeUserScramCredentialsResponse {
        error_message: Some(Str::default()),
        results: results.collect(),
        ..DescribeUserScramCredentialsResponse::default()
    };
    Ok(call
        .answer::<DescribeUserScramCredentialsRequest>(&response)?
        .into())
}

pub(super) fn alter_user_scram_credentials(
    context: &RequestContext,
    call: Call,
    body: Decoder,
) -> HandlerResult {
    let request: AlterUserScramCredentialsRequest = call.read(body)?;
    let deletions = request.deletions.into_iter().map(|deletion| {
        let message = "Attempt to delete a user credential that does not exist";
        (deletion.name, ErrorCode::ResourceNotFound, message)
    });
    let upsertions = request.upsertions.into_iter().map(|upsertion| {
        let message = "users with passwords are not served";
        (upsertion.name, ErrorCode::UnsupportedSaslMechanism, message)
    });
    let results = deletions
        .chain(upsertions)
        .map(|(user, code, message)| AlterUserScramCredentialsResult {
            user,
            error_code: context.shared.metrics.error(call.api, code),
            error_message: Some(message.into()),
        });
    let response = AlterUserScramCredentialsResponse {
        throttle_time_ms: 0,
        results: results.collect(),
    };
    Ok(call.answer::<AlterUserScramCredentialsRequest>(&response)?.into())
}

pub(super) fn create_delegation_token(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let _: CreateDelegationTokenRequest = call.read(body)?;
    let has_requester = call.version >= 3;
    let requester = |text| {
        if has_requester {
            Str::from_static(text)
        } else {
            Str::default()
        }
    };
    let response = CreateDelegationTokenResponse {
        error_code: no_tokens(context, call),
        principal_type: "User".into(),
        principal_name: "ANONYMOUS".into(),
        token_requester_principal_type: requester("User"),
        token_requester_principal_name: requester("ANONYMOUS"),
        issue_timestamp_ms: NONE,
        expiry_timestamp_ms: NONE,
        max_timestamp_ms: NONE,
        ..CreateDelegationTokenResponse::default()
    };
    Ok(call.answer::<CreateDelegationTokenRequest>(&response)?.into())
}

pub(super) fn renew_delegation_token(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let _: RenewDelegationTokenRequest = call.read(body)?;
    let response = RenewDelegationTokenResponse {
        error_code: no_tokens(context, call),
        expiry_timestamp_ms: NONE,
        throttle_time_ms: 0,
    };
    Ok(call.answer::<RenewDelegationTokenRequest>(&response)?.into())
}

pub(super) fn expire_delegation_token(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let _: ExpireDelegationTokenRequest = call.read(body)?;
    let response = ExpireDelegationTokenResponse {
        error_code: no_tokens(context, call),
        expiry_timestamp_ms: NONE,
        throttle_time_ms: 0,
    };
    Ok(call.answer::<ExpireDelegationTokenRequest>(&response)?.into())
}

pub(super) fn describe_delegation_token(
    context: &RequestContext,
    call: Call,
    body: Decoder,
) -> HandlerResult {
    let _: DescribeDelegationTokenRequest = call.read(body)?;
    let response = DescribeDelegationTokenResponse {
        error_code: no_tokens(context, call),
        ..DescribeDelegationTokenResponse::default()
    };
    Ok(call.answer::<DescribeDelegationTokenRequest>(&response)?.into())
}

/// Returns the error for token requests. Unauthenticated connections may not request tokens.
fn no_tokens(context: &RequestContext, call: Call) -> i16 {
    let code = ErrorCode::DelegationTokenRequestNotAllowed;
    context.shared.metrics.error(call.api, code)
}

pub(super) fn sasl_handshake(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let _: SaslHandshakeRequest = call.read(body)?;
    let response = SaslHandshakeResponse {
        error_code: context
            .shared
            .metrics
            .error(call.api, ErrorCode::IllegalSaslState),
        mechanisms: Vec::new(),
    };
    Ok(call.answer::<SaslHandshakeRequest>(&response)?.into())
}

pub(super) fn sasl_authenticate(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let _: SaslAuthenticateRequest = call.read(body)?;
    let response = SaslAuthenticateResponse {
        error_code: context
            .shared
            .metrics
            .error(call.api, ErrorCode::IllegalSaslState),
        error_message: Some("SaslAuthenticate request received after successful authentication".into()),
        ..SaslAuthenticateResponse::default()
    };
    Ok(call.answer::<SaslAuthenticateRequest>(&response)?.into())
}
