//! What every other crate speaks of: names, offsets, durability levels, batches and records.
//!
//! This crate is pure. It does no I/O, knows no clock, no async runtime and no protocol, and it is the only
//! crate that reads or builds the bytes of a stored batch.
//!
//! - [`id`]: logs, offsets, positions, epochs, as types that do not mix
//! - [`topic_name`]: what a topic may be called
//! - [`durability`]: the dial: what has happened before a write is acknowledged
//! - [`batch`]: the stored batch: its header, its checksum, its place in a log
//! - [`record`]: one record inside of a batch
//! - [`batch_builder`]: builds a batch out of records
//! - [`mod@records`]: reads the records of a batch
//! - [`message`]: what a queue stores, as a record
//! - `lock`: locks that a panic does not poison
//! - `namespace`: names of namespaces
//! - [`mod@partition`]: which partition a key leads to
//! - [`stored_message`]: a message where it lies in a stored batch
//! - [`validate`]: what has to hold for a batch that a producer sends
//! - [`fan_out`]: rebuilds a batch with a part of its records
//! - [`time`]: finds records of a batch by their timestamps
//! - [`append_time`]: gives a batch the time of its append
//! - [`mod@recompress`]: compresses a batch anew
//! - [`compression`]: the codecs of a batch's records, with bounded output
//! - [`codec`]: texts and numbers of stored definitions
//! - [`checksum`]: CRC-32C, the one checksum of every format here

pub mod append_time;
pub mod batch;
pub mod batch_builder;
pub mod checksum;
pub mod codec;
pub mod compression;
pub mod durability;
pub mod fan_out;
pub mod id;
mod lock;
pub mod message;
mod namespace;
pub mod partition;
pub mod recompress;
pub mod record;
pub mod records;
pub mod stored_message;
pub mod time;
pub mod topic_name;
pub mod validate;
mod varint;

pub use append_time::{SplitBatch, with_append_time};
pub use batch::{BatchError, BatchHeader, Codec};
pub use batch_builder::BatchBuilder;
pub use durability::Durability;
pub use fan_out::{Numbering, Selection, select};
pub use id::{Epoch, LogId, Offset, ProducerId};
pub use lock::{Lock, SharedLock};
pub use message::{Arrival, Death, DeathReason, MESSAGE_HEADER, Message, MessageHeaders};
pub use namespace::{NAME_BYTES_MAX, Namespace};
pub use partition::partition_of;
pub use recompress::recompress;
pub use record::{Header, Record};
pub use records::{Headers, Records, StoredRecord, records};
pub use stored_message::StoredMessage;
pub use time::{max_timestamp_record, offset_for_timestamp};
pub use topic_name::{TOPIC_NAME_BYTES_MAX, TopicName, TopicNameError};
pub use validate::{ProduceLimits, sole_batch, validate_deep, validate_produced};
pub use varint::{read_number, write_number};
