//! Routing facts from stored properties, for messages that are routed again: dead letters, delayed messages,
//! and all messages after a restart.

use bytes::Bytes;
use bytestring::ByteString;
use stafett_amqp_wire::{Properties, PropertiesBuilder, Value};
use stafett_messaging::exchanges::ReadAttributes;
use stafett_routing::{HeaderValue, Property};

use crate::content::{self, PROPERTIES};
use crate::exchange_kinds::header_value;

/// Reads the properties that [`content`] stores.
#[derive(Debug)]
pub(crate) struct KeptProperties;

fn read(kept: &[u8]) -> PropertiesBuilder {
    Properties::decode(Bytes::copy_from_slice(kept))
        .map(|properties| properties.read())
        .unwrap_or_default()
}

impl ReadAttributes for KeptProperties {
    fn header(&self) -> &'static str {
        PROPERTIES
    }

    fn headers(&self, kept: &[u8], visit: &mut dyn FnMut(&[u8], HeaderValue)) {
        let headers = read(kept).headers.unwrap_or_default();
        for (name, value) in headers.iter() {
            // RabbitMQ compares times in messages in milliseconds, times in bindings in seconds.
            let value = if let Value::Timestamp(seconds) = value {
                HeaderValue::Integer(i128::from(seconds) * 1000)
            } else {
                header_value(&value)
            };
            visit(name.as_bytes(), value);
        }
    }

    fn property(&self, kept: &[u8], property: Property) -> Option<Bytes> {
        let read = read(kept);
        match property {
            Property::MessageId => read.message_id.map(ByteString::into_bytes),
            Property::CorrelationId => read.correlation_id.map(ByteString::into_bytes),
            Property::Timestamp => read.timestamp.map(|seconds| seconds.to_string().into()),
        }
    }

    fn more_keys(&self, kept: &[u8]) -> Vec<ByteString> {
        let headers = read(kept).headers.unwrap_or_default();
        content::carbon_keys(&headers)
    }
}
