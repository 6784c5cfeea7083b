//! Writer of frequent or large answers, directly as bytes: structs would take memory for every topic and
//! partition.
//!
//! Tests read the output with the generated structs, in every version.

use bytes::BytesMut;
use stafett_kafka_wire::{Encoded, Encoder, ResponseHeader, Str};

use crate::call::{Call, Close, answer_buffer};
use crate::request_reader::TopicKey;

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

    /// Starts an answer of about `bytes` bytes.
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

    /// Writes a count of elements or bytes.
    pub(crate) fn count(&mut self, count: usize) {
        if self.is_flexible {
            self.e
                .uvarint(u32::try_from(count).unwrap_or(u32::MAX).saturating_add(1));
        } else {
            self.e.i32(i32::try_from(count).unwrap_or(i32::MAX));
        }
    }

    /// Writes the count of a null array.
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

    /// Writes a topic, named by its id from version `ids_from` on.
    pub(crate) fn topic(&mut self, key: &TopicKey, ids_from: i16) {
        if self.version >= ids_from {
            self.e.uuid(key.id);
        } else {
            self.string(&key.name);
        }
    }

    /// Writes the end of a struct: no tagged fields.
    pub(crate) fn tags(&mut self) {
        if self.is_flexible {
            self.e.tags(&[]);
        }
    }

    pub(crate) fn finish(self) -> Result<Encoded, Close> {
        Ok(self.e.finish()?)
    }
}
