//! `SaslHandshake` and `SaslAuthenticate`: logins. Before there are users, nothing can be logged in to.

use stafett_access::Caller;
use stafett_broker::LoginError;
use stafett_kafka_wire::messages::{
    SaslAuthenticateRequest, SaslAuthenticateResponse, SaslHandshakeRequest, SaslHandshakeResponse,
};
use stafett_kafka_wire::{Decoder, ErrorCode, Str};

use stafett_store::wall_ms;

use crate::call::{Call, Close};
use crate::context::RequestContext;
use crate::operation::{Operation, then};
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining};
use crate::sasl::{Authenticated, Mechanism, Sasl, SaslError};

/// Version from which on the messages of a login come in requests of their own.
const WRAPPED_FROM: i16 = 1;

pub(super) fn sasl_handshake(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: SaslHandshakeRequest = call.read(body)?;
    let offered = || Mechanism::offered(context.shared.broker.access());
    let mechanism = offered().find(|known| known.name() == &*request.mechanism);
    let has_users = context.shared.broker.access().directory().user_count() > 0;
    let (code, sasl) = match mechanism {
        _ if !has_users => (ErrorCode::IllegalSaslState, None),
        Some(mechanism) if call.version >= WRAPPED_FROM => (ErrorCode::None, Some(Sasl::Chosen(mechanism))),
        Some(_) | None => (ErrorCode::UnsupportedSaslMechanism, Some(Sasl::Failed)),
    };
    if let Some(sasl) = sasl {
        context.identity.set_sasl(sasl);
    }
    let names = offered().filter(|_| has_users);
    let response = SaslHandshakeResponse {
        error_code: context.shared.metrics.error(call.api, code),
        mechanisms: names
            .map(|mechanism| Str::from_static(mechanism.name()))
            .collect(),
    };
    let is_refused = code == ErrorCode::UnsupportedSaslMechanism;
    let answer = call.answer::<SaslHandshakeRequest>(&response)?;
    Ok(answer.then(is_refused.then_some(Close::LoginRefused)).into())
}

pub(super) fn sasl_authenticate(context: &RequestContext, call: Call, body: Decoder) -> HandlerResult {
    let request: SaslAuthenticateRequest = call.read(body)?;
    if context.shared.broker.access().directory().user_count() == 0 {
        let response = SaslAuthenticateResponse {
            error_code: context
                .shared
                .metrics
                .error(call.api, ErrorCode::IllegalSaslState),
            error_message: Some("SaslAuthenticate request received after successful authentication".into()),
            ..SaslAuthenticateResponse::default()
        };
        return Ok(call.answer::<SaslAuthenticateRequest>(&response)?.into());
    }
    let answered = then(move |context: &RequestContext, done: Authenticated| {
        let close = done.is_err().then_some(Close::LoginRefused);
        let response = match done {
            Ok((auth_bytes, caller)) => {
                if let Some(user) = caller.as_deref().and_then(|caller| caller.name()) {
                    tracing::debug!(user, peer = %context.entry.peer, "logged in");
                }
                // A client logs in again before its token expires.
                let expiry = caller.as_deref().and_then(Caller::expires_ms);
                SaslAuthenticateResponse {
                    error_message: None,
                    auth_bytes,
                    session_lifetime_ms: expiry.map_or(0, |expiry| (expiry - wall_ms()).max(1)),
                    ..SaslAuthenticateResponse::default()
                }
            }
            // An answer would be final for clients, and a connection that ends is opened again.
            Err(SaslError::Login(LoginError::Busy)) => return Err(Close::LoginBusy),
            Err(why) => {
                let code = if why.is_out_of_order() {
                    ErrorCode::IllegalSaslState
                } else {
                    ErrorCode::SaslAuthenticationFailed
                };
                SaslAuthenticateResponse {
                    error_code: context.shared.metrics.error(call.api, code),
                    error_message: Some(why.text().into()),
                    ..SaslAuthenticateResponse::default()
                }
            }
        };
        Ok(call.answer::<SaslAuthenticateRequest>(&response)?.then(close))
    });
    let operation = Operation::Authenticate(request.auth_bytes, answered);
    Ok(PendingResponse::awaiting(operation, Pipelining::Barrier))
}
