//! The protocol machine: from frames to responses. Parses the header, checks API and version, calls the
//! handler.
//!
//! Nothing here waits: a response that has to wait is an operation in the queue of responses, which the
//! connection performs. Where Kafka closes the connection, a [`Close`] goes into the queue, so that earlier
//! requests are answered first.

use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use stafett_kafka_wire::{ApiKey, DecodeError, DecodeLimits, Decoder, ErrorCode, Str, frame};
use stafett_net::Frame;
use tokio::time::Instant;

use crate::call::{Call, Close};
use crate::cells::Place;
use crate::context::RequestContext;
use crate::operation::Operation;
use crate::produce_results::Staging;
use crate::response_queue::{HandlerResult, PendingResponse, Pipelining, QueuedResponse, ResponseQueue};
use crate::{api, cells, gate, group_cells, traced};

/// Facts about the frames that are executed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Input {
    /// They waited too long: produce requests are refused.
    pub refuses: bool,
    /// Time that the first of them took to come.
    pub received_in: Duration,
}

/// Executes frames in order, until none is left, a response blocks the others, or too many responses are
/// pending.
pub(crate) fn on_input(
    context: &RequestContext,
    frames: &mut VecDeque<Frame>,
    responses: &mut ResponseQueue,
    input: Input,
) {
    let shared = &*context.shared;
    let mut staging = Staging {
        refuses: input.refuses,
        ..Staging::default()
    };
    let mut receive = input.received_in;
    while !responses.is_blocked()
        && responses.len() < shared.settings.answers_max
        && context.muted_until().is_none()
    {
        if frames.is_empty() {
            break;
        }
        let begun = Instant::now();
        if input.refuses
            && let Some(refused) = api::refuse_produces(context, frames, begun)
        {
            responses.push(refused);
            continue;
        }
        let Some(Frame { payload, permit }) = frames.pop_front() else {
            break;
        };
        let frame_bytes = payload.len();
        let receive = std::mem::take(&mut receive);
        let trace = context.trace.as_deref();
        let mut traced = trace.and_then(|trace| traced::begin(trace, receive, frame_bytes));
        let (api, response) = read_and_execute(context, payload, &mut staging);
        let since = Instant::now();
        if let Some(api) = api {
            shared.metrics.on_request(api, since - begun);
        }
        if let Some(traced) = &mut traced {
            traced.on_executed(api, since - begun, since);
        }
        let permit = if response.holds_request() {
            permit
        } else {
            let mut taken = permit;
            taken.split(0)
        };
        responses.push(QueuedResponse {
            response,
            api,
            since,
            permit,
            traced,
        });
    }
    staging.append(shared.broker.catalog());
    for (ticket, answers) in staging.appended {
        responses.push_produces(ticket, answers);
    }
}

/// Returns the API of a request, unless it cannot be read, and its response.
fn read_and_execute(
    context: &RequestContext,
    payload: Bytes,
    staging: &mut Staging,
) -> (Option<ApiKey>, PendingResponse) {
    let frame_bytes = payload.len();
    let frame = context.shared.is_further_cell().then(|| payload.clone());
    let (api, response) = match open(payload) {
        Err(close) => (None, Err(close)),
        Ok((call, client, body)) => {
            note(context, client.as_deref());
            let opened = (call, client.as_deref(), body);
            (
                Some(call.api),
                execute(context, opened, (frame, frame_bytes), staging),
            )
        }
    };
    (
        api,
        response.unwrap_or_else(|close| PendingResponse::Ready(Err(close))),
    )
}

/// Notes the client of a request, and charges it.
pub(crate) fn note(context: &RequestContext, client: Option<&str>) {
    if !context.is_introduced.load(Ordering::Relaxed) {
        context.introduce(client, ("", ""));
    }
    context.note_request(client);
}

/// Checks the rights for a request, and executes it.
fn execute(
    context: &RequestContext,
    (call, client, body): (Call, Option<&str>, Decoder),
    (frame, frame_bytes): (Option<Bytes>, usize),
    staging: &mut Staging,
) -> HandlerResult {
    let refused = gate::check(context, call, &body)?;
    if let Some(refused) = refused {
        return Ok(refused.into());
    }
    let place = cells::place(context, call, &body)?;
    match (place, frame) {
        (Place::First, Some(frame)) => {
            let operation = Operation::AskFirstCell(frame);
            return Ok(PendingResponse::awaiting(operation, Pipelining::Barrier));
        }
        (Place::OtherCoordinator, _) => {
            let refused = gate::refuse(context, call, &body, ErrorCode::NotCoordinator)?;
            return Ok(refused.into());
        }
        (Place::Here | Place::First, _) => {}
    }
    let deletion = group_cells::delete(context, call, &body)?;
    if let Some(operation) = deletion {
        return Ok(PendingResponse::awaiting(operation, Pipelining::Barrier));
    }
    api::dispatch(context, call, client, body, frame_bytes, staging)
}

/// Reads the header of a request: API and version, client id. Fails if it is not served.
pub(crate) fn open(payload: Bytes) -> Result<(Call, Option<Str>, Decoder), Close> {
    let (header, body) = frame::open_request(payload, DecodeLimits::default())?;
    let call = Call {
        api: header.api,
        version: header.version,
        correlation_id: header.correlation_id,
    };
    if !api::is_served(call.api) {
        return Err(Close::NotServed(call.api));
    }
    if !call.api.versions().contains(call.version) && call.api != ApiKey::ApiVersions {
        let Call { api, version, .. } = call;
        return Err(DecodeError::UnsupportedVersion { api, version }.into());
    }
    Ok((call, header.client_id, body))
}
