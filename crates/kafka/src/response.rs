//! A complete response, and the memory that it is encoded in.

use std::cell::Cell;

use bytes::BytesMut;
use stafett_kafka_wire::Encoded;
use stafett_net::Permit;
use tokio::sync::OwnedSemaphorePermit;

use crate::close::Close;

/// Usual bytes of an answer without records.
const ANSWER_BYTES: usize = 512;
/// Bytes of a block of memory for answers.
const BLOCK_BYTES: usize = 32 * ANSWER_BYTES;

thread_local! {
    static BLOCK: Cell<BytesMut> = Cell::new(BytesMut::new());
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
}

impl From<Encoded> for EncodedResponse {
    fn from(encoded: Encoded) -> Self {
        Self {
            encoded: Some(encoded),
            ..Self::default()
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
