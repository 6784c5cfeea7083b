//! Rights that each request needs, checked before its handler runs.
//!
//! Every served API has a line in a table; one without is refused, and a test names it. Requests about many
//! things are executed as a whole or not at all: if one of the things is refused, the others are answered
//! with `OPERATION_NOT_ATTEMPTED`. Where Kafka answers for each thing and clients depend on it, the handler
//! checks (`Produce`, `Fetch`, `Metadata`, lists).
//!
//! A caller that may do everything is not checked, and its request is not read here.

mod cluster;
mod groups;
mod topics;

use stafett_access::Action;
use stafett_kafka_wire::{ApiKey, Decoder, ErrorCode, Request};

use crate::call::{Call, Close, EncodedResponse};
use crate::context::RequestContext;

/// The answer to a refused request. `None` if the request is to be executed.
pub(crate) type Checked = Result<Option<EncodedResponse>, Close>;

/// Function that checks the requests of an API.
type Right = fn(Gate<'_>) -> Checked;

/// A request that is checked.
#[derive(Clone, Copy)]
struct Gate<'a> {
    context: &'a RequestContext,
    call: Call,
    body: &'a Decoder,
    /// The code of a request that is refused whatever the caller's rights.
    refused: Option<ErrorCode>,
}

/// Checks the rights for a request.
pub(crate) fn check(context: &RequestContext, call: Call, body: &Decoder) -> Checked {
    let before_login = matches!(
        call.api,
        ApiKey::ApiVersions | ApiKey::SaslHandshake | ApiKey::SaslAuthenticate
    );
    if before_login {
        return Ok(None);
    }
    if context.identity.is_logging_in() {
        return Err(Close::NoLogin);
    }
    if context.caller().is_unrestricted() {
        return Ok(None);
    }
    if context.must_log_in() {
        return Err(Close::NoLogin);
    }
    let gate = Gate {
        context,
        call,
        body,
        refused: None,
    };
    right(gate).unwrap_or(Err(Close::NotServed(call.api)))
}

/// Refuses a request about groups with a code, in the form of its answer.
pub(crate) fn refuse(
    context: &RequestContext,
    call: Call,
    body: &Decoder,
    code: ErrorCode,
) -> Result<EncodedResponse, Close> {
    let gate = Gate {
        context,
        call,
        body,
        refused: Some(code),
    };
    let refused = right(gate).unwrap_or(Err(Close::NotServed(call.api)))?;
    refused.ok_or(Close::NotServed(call.api))
}

/// APIs whose handlers check rights, and those that need none.
const BY_HANDLER: &[ApiKey] = &[
    // Per topic.
    ApiKey::Produce,
    ApiKey::Fetch,
    ApiKey::Metadata,
    ApiKey::DescribeTopicPartitions,
    // Lists: hidden things are left out.
    ApiKey::ListGroups,
    ApiKey::ListTransactions,
    // Addresses of brokers, and metrics of clients.
    ApiKey::DescribeCluster,
    ApiKey::GetTelemetrySubscriptions,
    ApiKey::PushTelemetry,
    // Answered alike to all: there are no delegation tokens.
    ApiKey::CreateDelegationToken,
    ApiKey::RenewDelegationToken,
    ApiKey::ExpireDelegationToken,
    ApiKey::DescribeDelegationToken,
];

/// Checks a request. `None` for an API without declared rights.
fn right(gate: Gate<'_>) -> Option<Checked> {
    let api = gate.call.api;
    // First, as the requests that move records are among them.
    if BY_HANDLER.contains(&api) {
        return Some(Ok(None));
    }
    let mut rights = topics::RIGHTS.iter().chain(groups::RIGHTS).chain(cluster::RIGHTS);
    let (_, check) = rights.find(|(known, _)| *known == api)?;
    Some(check(gate))
}

impl Gate<'_> {
    /// Reads the request and checks it; `respond` makes the answer of a refused one.
    fn check<R: Request>(
        self,
        check: impl FnOnce(&R) -> Result<(), ErrorCode>,
        respond: impl FnOnce(R, i16) -> R::Response,
    ) -> Checked {
        let request: R = self.call.read(self.body.clone())?;
        let checked = match self.refused {
            Some(code) => Err(code),
            None => check(&request),
        };
        let Err(code) = checked else {
            return Ok(None);
        };
        let code = self.context.shared.metrics.error(self.call.api, code);
        self.call.answer::<R>(&respond(request, code)).map(Some)
    }

    /// Checks all topics, so that each refusal is noted.
    fn topics<'n>(self, action: Action, names: impl Iterator<Item = &'n str>) -> Result<(), ErrorCode> {
        let checked = names.map(|name| self.context.check_topic(action, name));
        checked.fold(Ok(()), Result::and)
    }

    /// Returns the code for a topic of a refused request.
    fn code_of_topic(self, action: Action, name: &str) -> i16 {
        if self.context.may_topic(action, name) {
            ErrorCode::OperationNotAttempted.code()
        } else {
            ErrorCode::TopicAuthorizationFailed.code()
        }
    }
}

#[cfg(test)]
mod tests;
