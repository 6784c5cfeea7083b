//! Reader of frequent requests, without structs for every topic and partition.
//!
//! Tests encode the generated structs in every version and read them here.

use std::sync::Arc;

use bytes::Bytes;
use stafett_kafka_wire::{DecodeError, Decoder, ErrorCode, Str, Uuid};
use stafett_topics::{Topic, TopicId, Topics};

use crate::call::Call;

/// Name or id of a topic in a request.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct TopicKey {
    pub name: Str,
    pub id: Uuid,
    /// True if `id` is the key. An id of zeros matches no topic.
    pub by_id: bool,
}

/// A request that is being read. Its version exists.
pub(crate) struct Reader {
    pub d: Decoder,
    pub version: i16,
    is_flexible: bool,
}

impl TopicKey {
    pub(crate) fn find(&self, topics: &Topics) -> Option<Arc<Topic>> {
        if self.by_id {
            topics.with_id(TopicId(self.id.into()))
        } else {
            topics.named(&self.name)
        }
    }

    /// Returns the error for a missing topic.
    pub(crate) fn unknown(&self) -> ErrorCode {
        if self.by_id {
            ErrorCode::UnknownTopicId
        } else {
            ErrorCode::UnknownTopicOrPartition
        }
    }
}

impl Reader {
    pub(crate) fn new(call: Call, body: Decoder) -> Self {
        Self {
            d: body,
            version: call.version,
            is_flexible: call.api.is_flexible(call.version),
        }
    }

    /// Reads a count of elements that take at least `bytes_min` bytes each.
    pub(crate) fn count(&mut self, bytes_min: usize) -> Result<usize, DecodeError> {
        self.d.count_of(self.is_flexible, bytes_min)
    }

    /// Reads a topic, named by its id from version `ids_from` on.
    pub(crate) fn topic(&mut self, ids_from: i16) -> Result<TopicKey, DecodeError> {
        if self.version >= ids_from {
            Ok(TopicKey {
                name: Str::default(),
                id: self.d.uuid()?,
                by_id: true,
            })
        } else {
            Ok(TopicKey {
                name: self.string()?,
                id: Uuid::ZERO,
                by_id: false,
            })
        }
    }

    pub(crate) fn string(&mut self) -> Result<Str, DecodeError> {
        self.d.string(self.is_flexible)
    }

    pub(crate) fn opt_string(&mut self) -> Result<Option<Str>, DecodeError> {
        self.d.opt_string(self.is_flexible, true)
    }

    pub(crate) fn opt_bytes(&mut self) -> Result<Option<Bytes>, DecodeError> {
        self.d.opt_bytes(self.is_flexible, true)
    }

    /// Skips the tagged fields at the end of a struct.
    pub(crate) fn tags(&mut self) -> Result<(), DecodeError> {
        if self.is_flexible {
            self.d.no_tags()
        } else {
            Ok(())
        }
    }
}
