//! A format of live topics that a test can read: the topic, `=`, the payload.

use bytes::Bytes;
use stafett_live_topics::{Format, Message};

#[derive(Debug)]
pub(crate) struct Plain;

impl Format for Plain {
    fn number(&self) -> usize {
        0
    }

    fn encode(&self, message: &Message<'_>) -> Bytes {
        [message.topic.as_bytes(), b"=", message.payload.bytes()]
            .concat()
            .into()
    }
}
