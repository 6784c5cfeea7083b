//! A call: its header, its response, and the reasons to end the connection instead.

use std::cell::Cell;

use bytes::BytesMut;
use stafett_kafka_wire::{ApiKey, DecodeError, Decoder, EncodeError, Encoded, Request, frame};
use stafett_net::Permit;
use tokio::sync::OwnedSemaphorePermit;

/// Usual bytes of an answer without records.
const ANSWER_BYTES: usize = 512;
/// Bytes of a block of memory for answers.
const BLOCK_BYTES: usize = 32 * ANSWER_BYTES;

thread_local! {
    static BLOCK: Cell<BytesMut> = Cell::new(BytesMut::new());
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

/// An answer, or the reason to end the connection.
pub(crate) type ResponseResult = Result<EncodedResponse, Close>;

/// A complete answer, and the resources that it holds until it is written.
#[derive(Debug, Default)]
pub(crate) struct EncodedResponse {
    /// `None` if the client wants no answer.
    pub encoded: Option<Encoded>,
    /// Memory of the answer.
    pub memory: Option<Permit>,
    /// Permit to have a large answer in memory.
    pub turn: Option<OwnedSemaphorePermit>,
    /// Reason to end the connection once it is written.
    pub close: Option<Close>,
}

impl EncodedResponse {
    /// Ends the connection behind the answer, if there is a reason.
    pub(crate) fn then(self, close: Option<Close>) -> Self {
        Self { close, ..self }
    }
}

impl From<Encoded> for EncodedResponse {
    fn from(encoded: Encoded) -> Self {
        Self {
            encoded: Some(encoded),
            ..Self::default()
        }
    }
}

/// Reason why a connection ends.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Close {
    #[error("a request cannot be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("{} is not served", .0.name())]
    NotServed(ApiKey),
    #[error("an answer cannot be written: {0}")]
    Encode(#[from] EncodeError),
    #[error("the client has not logged in")]
    NoLogin,
    #[error("the client's login was refused")]
    LoginRefused,
    #[error("too many logins are waiting")]
    LoginBusy,
    #[error("a produce request that wants no answer failed")]
    SilentFailure,
    #[error("the first cell of the cluster does not answer")]
    NoFirstCell,
    #[error("another node may own the cell")]
    NotOwner,
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
            Self::NoLogin => "no_login",
            Self::LoginRefused => "login_refused",
            Self::LoginBusy => "login_busy",
            Self::SilentFailure => "unanswered_produce_failed",
            Self::NoFirstCell => "no_first_cell",
            Self::NotOwner => "not_owner",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }
}

/// Returns an empty buffer for an answer: a piece of a block that several answers share.
pub(crate) fn answer_buffer() -> BytesMut {
    let mut block = BLOCK.take();
    if block.capacity() < ANSWER_BYTES {
        block = BytesMut::with_capacity(BLOCK_BYTES);
    }
    let rest = block.split_off(ANSWER_BYTES);
    BLOCK.set(rest);
    block
}
