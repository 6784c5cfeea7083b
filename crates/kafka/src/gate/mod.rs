//! Rights that each request needs, checked before its handler runs.
//!
//! Every served API has a line in [`check`]; one without is refused, and a test names it. Requests about many
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

/// A request that is checked.
#[derive(Clone, Copy)]
struct Gate<'a> {
    context: &'a RequestContext,
    call: Call,
    body: &'a Decoder,
}

/// Checks the rights for a request.
pub(crate) fn check(context: &RequestContext, call: Call, body: &Decoder) -> Checked {
    let before_login = matches!(
        call.api,
        ApiKey::ApiVersions | ApiKey::SaslHandshake | ApiKey::SaslAuthenticate
    );
    if before_login || context.caller().is_unrestricted() {
        return Ok(None);
    }
    if context.must_log_in() {
        return Err(Close::NoLogin);
    }
    let gate = Gate { context, call, body };
    right(gate).unwrap_or(Err(Close::NotServed(call.api)))
}

/// Checks a request. `None` for an API without declared rights.
fn right(gate: Gate<'_>) -> Option<Checked> {
    let api = gate.call.api;
    let checked = topics::right(gate, api).or_else(|| groups::right(gate, api));
    let checked = checked.or_else(|| cluster::right(gate, api));
    checked.or_else(|| is_checked_by_handler(api).then_some(Ok(None)))
}

/// APIs whose handlers check rights for each thing, and those that need none.
fn is_checked_by_handler(api: ApiKey) -> bool {
    match api {
        // Per topic.
        ApiKey::Produce | ApiKey::Fetch | ApiKey::Metadata | ApiKey::DescribeTopicPartitions => true,
        // Lists: what may not be seen is left out.
        ApiKey::ListGroups | ApiKey::ListTransactions => true,
        // Addresses of brokers, and what a client tells of itself.
        ApiKey::DescribeCluster | ApiKey::GetTelemetrySubscriptions | ApiKey::PushTelemetry => true,
        // Answered alike to all: there are no delegation tokens.
        ApiKey::CreateDelegationToken
        | ApiKey::RenewDelegationToken
        | ApiKey::ExpireDelegationToken
        | ApiKey::DescribeDelegationToken => true,
        _ => false,
    }
}

impl Gate<'_> {
    /// Reads the request and checks it; `respond` makes the answer of a refused one.
    fn check<R: Request>(
        self,
        check: impl FnOnce(&R) -> Result<(), ErrorCode>,
        respond: impl FnOnce(R, i16) -> R::Response,
    ) -> Checked {
        let request: R = self.call.read(self.body.clone())?;
        let Err(code) = check(&request) else {
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
mod tests {
    use super::*;
    use crate::tests::Bench;

    /// A request that cannot be read is an error of its API; only an API without rights gives none.
    #[test]
    fn each_served_api_has_declared_rights() {
        let bench = Bench::new();
        for api in crate::api::served() {
            let call = Call {
                api: *api,
                version: api.versions().max,
                correlation_id: 0,
            };
            let before_login = [
                ApiKey::ApiVersions,
                ApiKey::SaslHandshake,
                ApiKey::SaslAuthenticate,
            ];
            let body = Decoder::new(bytes::Bytes::new(), stafett_kafka_wire::DecodeLimits::default());
            let gate = Gate {
                context: &bench.context,
                call,
                body: &body,
            };
            assert!(
                before_login.contains(api) || right(gate).is_some(),
                "{} needs a line in gate/",
                api.name()
            );
        }
    }
}
