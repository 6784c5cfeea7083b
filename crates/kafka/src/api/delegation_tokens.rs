//! Delegation tokens, which this broker does not have.

use stafett_kafka_wire::messages::{
    CreateDelegationTokenRequest, CreateDelegationTokenResponse, DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse, ExpireDelegationTokenRequest, ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest, RenewDelegationTokenResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};

use crate::call::Call;
use crate::context::RequestContext;
use crate::response_queue::HandlerResult;

/// No time.
const NONE: i64 = -1;

pub(super) fn create_delegation_token(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let _: CreateDelegationTokenRequest = call.read(body)?;
    let name = Str::from(context.caller().name().unwrap_or("ANONYMOUS").to_owned());
    let has_requester = call.version >= 3;
    let requester = |text: &Str| {
        if has_requester {
            text.clone()
        } else {
            Str::default()
        }
    };
    let response = CreateDelegationTokenResponse {
        error_code: no_tokens(context, call),
        principal_type: "User".into(),
        token_requester_principal_type: requester(&"User".into()),
        token_requester_principal_name: requester(&name),
        principal_name: name,
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

/// Returns the error for token requests: connections without a login may not request tokens, and for others
/// there are none.
fn no_tokens(context: &RequestContext, call: Call) -> i16 {
    let code = if context.caller().name().is_some() {
        ErrorCode::DelegationTokenAuthDisabled
    } else {
        ErrorCode::DelegationTokenRequestNotAllowed
    };
    context.shared.metrics.error(call.api, code)
}
