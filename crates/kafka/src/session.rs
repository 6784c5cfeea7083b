//! From frames to answers: parses the header, checks API and version, calls the handler.
//!
//! Nothing here waits. Where Kafka closes the connection, a [`Close`] goes into the queue of answers, so that
//! earlier requests are answered first.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use bytes::Bytes;
use stafett_kafka_wire::{
    ApiKey, DecodeError, DecodeLimits, Decoder, EncodeError, Encoded, Request, Str, frame,
};
use stafett_net::{ByteBudget, Frame};
use stafett_topics::Append;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::api;
use crate::context::KafkaContext;
use crate::response_queue::{PendingResponse, QueuedResponse, ResponseQueue, ResponseResult};
use crate::response_writer::answer_buffer;
use crate::settings::Endpoint;

/// Reason why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Close {
    #[error("a request cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("{} is not served", .0.name())]
    NotServed(ApiKey),
    #[error("an answer cannot be written: {0}")]
    Encode(#[from] EncodeError),
    #[error("a produce request that wants no answer failed")]
    SilentFailure,
    #[error("the journal cannot tell whether a batch was stored")]
    OutcomeUnknown,
}

impl Close {
    /// Returns one word of a fixed set, for metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Decode(DecodeError::UnknownApi { .. }) => "unknown_api",
            Self::Decode(DecodeError::UnsupportedVersion { .. }) => "unsupported_version",
            Self::Decode(_) => "malformed_request",
            Self::NotServed(_) => "unserved_api",
            Self::Encode(_) => "unwritable_answer",
            Self::SilentFailure => "unanswered_produce_failed",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }
}

/// Parts of the request header that an answer needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub api: ApiKey,
    pub version: i16,
    pub correlation_id: i32,
}

impl Call {
    pub(crate) fn answer<R: Request>(self, response: &R::Response) -> ResponseResult {
        Ok(self.encode::<R>(response)?.into())
    }

    pub(crate) fn encode<R: Request>(self, response: &R::Response) -> Result<Encoded, Close> {
        Ok(frame::write_response_into::<R>(
            answer_buffer(),
            self.version,
            self.correlation_id,
            response,
        )?)
    }

    pub(crate) fn read<R: Request>(self, body: Decoder) -> Result<R, Close> {
        Ok(frame::read_request(body, self.version)?)
    }
}

/// Environment of every request of a connection; cheap to clone into a task.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    pub shared: Arc<KafkaContext>,
    /// Address that the client connected to.
    pub local: SocketAddr,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Cancelled when the connection must not wait any longer.
    pub drain: CancellationToken,
    pub budget: Arc<ByteBudget>,
    /// True if the client does not block while a heartbeat is unanswered.
    pub is_patient: Arc<AtomicBool>,
}

/// Batches of produce requests that are executed together.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    pub appends: Vec<Append>,
    /// Number of answers that wait for them.
    pub answers: usize,
}

impl Context {
    /// Executes frames in order, until none is left, an answer blocks the others, or too many answers are
    /// pending.
    pub(crate) fn execute(&self, frames: &mut VecDeque<Frame>, answers: &mut ResponseQueue) {
        let mut staging = Staging::default();
        while !answers.is_blocked() && answers.len() < self.shared.settings.answers_max {
            let Some(Frame { payload, permit }) = frames.pop_front() else {
                break;
            };
            let begun = Instant::now();
            let frame_bytes = payload.len();
            let (api, kind) = match open(payload) {
                Err(close) => (None, PendingResponse::Ready(Err(close))),
                Ok((call, client, body)) => {
                    let kind = api::dispatch(self, call, client.as_deref(), body, frame_bytes, &mut staging);
                    (
                        Some(call.api),
                        kind.unwrap_or_else(|close| PendingResponse::Ready(Err(close))),
                    )
                }
            };
            let since = Instant::now();
            if let Some(api) = api {
                self.shared.metrics.on_request(api, since - begun);
            }
            let permit = if matches!(kind, PendingResponse::Waiting(_) | PendingResponse::Held(..)) {
                let mut taken = permit;
                taken.split(0)
            } else {
                permit
            };
            answers.push(QueuedResponse {
                kind,
                api,
                since,
                permit,
            });
        }
        let Staging {
            appends,
            answers: count,
        } = staging;
        if count > 0 {
            answers.push_group(self.shared.broker.catalog().append(appends), count);
        }
    }

    /// Returns the address for clients: the advertised one, or the one that this client connected to.
    pub(crate) fn endpoint(&self) -> (Str, i32) {
        match &self.shared.settings.advertised {
            Some(Endpoint { host, port }) => (Str::copy_from(host), i32::from(*port)),
            None => (
                self.local.ip().to_canonical().to_string().into(),
                i32::from(self.local.port()),
            ),
        }
    }
}

/// Reads the header of a request: API and version, client id. Fails if it is not served.
fn open(payload: Bytes) -> Result<(Call, Option<Str>, Decoder), Close> {
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
