//! Conversion between messages of AMQP and messages of the core.
//!
//! Properties that the core acts on are extracted. The properties themselves are kept unchanged in one header
//! of our own, unless they can be derived from the message. For readers of other protocols, properties and
//! simple headers are repeated as ordinary headers; the table is in `docs/conversions.md`.

mod receive;
#[cfg(test)]
mod tests;
mod write;

pub(crate) use self::receive::{Incoming, Publisher, carbon_keys, receive};
pub(crate) use self::write::{Additions, properties_of, write_properties};

/// Header with the original properties.
pub(crate) const PROPERTIES: &str = "stafett.amqp";
/// Name of the AMQP header for a record's key.
pub(crate) const KEY: &str = "stafett-key";
const PERSISTENT: u8 = 2;

const CONTENT_TYPE: &str = "content-type";
const CONTENT_ENCODING: &str = "content-encoding";
const CORRELATION_ID: &str = "correlation-id";
const REPLY_TO: &str = "reply-to";
const MESSAGE_ID: &str = "message-id";
const TYPE: &str = "type";
const USER_ID: &str = "user-id";
const APP_ID: &str = "app-id";
