//! Writes the answers of which there are many, or that are large, straight into their bytes: their structs
//! would take memory for every topic and partition.
//!
//! What is written here is read in tests by the structs that it goes around, in every version.

use std::cell::Cell;

use bytes::BytesMut;
use stafett_kafka_wire::{Encoded, Encoder, ResponseHeader, Str};

use crate::reader::TopicKey;
use crate::session::{Call, Close};

/// What an answer usually takes, but for records.
const ANSWER_BYTES: usize = 512;
/// Memory for answers is taken so many bytes at a time.
const BLOCK_BYTES: usize = 32 * ANSWER_BYTES;

thread_local! {
    static BLOCK: Cell<BytesMut> = Cell::new(BytesMut::new());
}

/// Empty memory for an answer: a piece of a block that several answers share.
pub(crate) fn answer_buffer() -> BytesMut {
    let mut block = BLOCK.take();
    if block.capacity() < ANSWER_BYTES {
        block = BytesMut::with_capacity(BLOCK_BYTES);
    }
    let rest = block.split_off(ANSWER_BYTES);
    BLOCK.set(rest);
    block
}

/// An answer that is being written.
pub(crate) struct Writer {
    pub e: Encoder,
    pub version: i16,
    is_flexible: bool,
}

impl Writer {
    pub(crate) fn new(call: Call) -> Self {
        Self::in_buffer(call, answer_buffer())
    }

    /// For an answer of about so many bytes.
    pub(crate) fn with_capacity(call: Call, bytes: usize) -> Self {
        Self::in_buffer(call, BytesMut::with_capacity(bytes))
    }

    fn in_buffer(call: Call, buffer: BytesMut) -> Self {
        let Call {
            api,
            version,
            correlation_id,
        } = call;
        let mut e = Encoder::frame_into(buffer);
        ResponseHeader { correlation_id }.encode(&mut e, api, version);
        Self {
            e,
            version,
            is_flexible: api.is_flexible(version),
        }
    }

    pub(crate) fn is_flexible(&self) -> bool {
        self.is_flexible
    }

    /// How many elements, or bytes, follow.
    pub(crate) fn count(&mut self, count: usize) {
        if self.is_flexible {
            self.e
                .uvarint(u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1));
        } else {
            self.e.i32(i32::try_from(count).unwrap_or(i32::MAX));
        }
    }

    /// In place of an array that is not there.
    pub(crate) fn null_count(&mut self) {
        if self.is_flexible {
            self.e.uvarint(0);
        } else {
            self.e.i32(-1);
        }
    }

    pub(crate) fn string(&mut self, text: &Str) {
        self.e.string(text, self.is_flexible);
    }

    pub(crate) fn opt_string(&mut self, text: Option<&Str>) {
        self.e.opt_string(text, self.is_flexible);
    }

    /// A topic, as a client names it that names it by its id from a version on.
    pub(crate) fn topic(&mut self, key: &TopicKey, ids_from: i16) {
        if self.version >= ids_from {
            self.e.uuid(key.id);
        } else {
            self.string(&key.name);
        }
    }

    /// The end of a struct: no tagged fields.
    pub(crate) fn tags(&mut self) {
        if self.is_flexible {
            self.e.tags(&[]);
        }
    }

    pub(crate) fn finish(self) -> Result<Encoded, Close> {
        Ok(self.e.finish()?)
    }
}
