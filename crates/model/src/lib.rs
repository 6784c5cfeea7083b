//! Types shared by all crates: names, offsets, durability levels, batches and records.
//!
//! This crate is pure. It does no I/O, knows no clock, no async runtime and no protocol, and it is the only
//! crate that reads or builds the bytes of a stored batch.
//!
//! - `id`: logs, offsets, epochs and producers, as types that do not mix
//! - `topic_name`: rules for the names of topics
//! - `durability`: durability levels of a write
//! - [`batch`]: the stored batch: its header, its checksum, its placement in a log
//! - `record`: one record of a batch
//! - `batch_builder`: builds a batch from records
//! - [`mod@records`]: reads the records of a batch
//! - `message`: the records that queues store
//! - `by_name`: things in the order of their names
//! - `lock`: locks that a panic does not poison
//! - `lock_order`: checks the order in which threads take locks, in builds with debug assertions
//! - `namespace`: names of namespaces
//! - [`mod@partition`]: choice of a partition by key
//! - [`quantity`]: sizes, durations and rates as texts
//! - `stored_message`: a message in place, inside a stored batch
//! - `validate`: checks of a batch from a producer
//! - [`fan_out`]: rebuilds a batch with a part of its records
//! - `tenure`: the time for which answers from the state in memory are right
//! - `time`: finds records of a batch by timestamp
//! - `transaction`: control batches that end a transaction
//! - `append_time`: sets the append time of a batch
//! - [`mod@recompress`]: recompresses a batch
//! - `retain`: rebuilds a batch with some of its records, for compaction
//! - [`compression`]: codecs of a batch's records, with bounded output
//! - [`codec`]: encoding of texts and numbers in stored definitions
//! - [`checksum`]: CRC-32C, the checksum of all formats

mod append_time;
pub mod batch;
mod batch_builder;
mod by_name;
pub mod checksum;
pub mod codec;
pub mod compression;
mod durability;
pub mod fan_out;
mod id;
mod lock;
mod lock_order;
mod message;
mod namespace;
mod partition;
pub mod quantity;
pub mod recompress;
mod record;
pub mod records;
mod retain;
mod stored_message;
mod tenure;
mod time;
mod topic_name;
mod transaction;
mod validate;
mod varint;

pub use append_time::{SplitBatch, with_append_time};
pub use batch::{BatchError, BatchHeader, Codec};
pub use batch_builder::BatchBuilder;
pub use by_name::{ByName, NameRange, Named};
pub use durability::Durability;
pub use fan_out::{Numbering, Selection, select};
pub use id::{Epoch, LogId, Offset, ProducerId};
pub use lock::{Lock, LockGuard, ReadGuard, SharedLock, WakeUp, WriteGuard};
pub use message::{Arrival, Death, DeathReason, MESSAGE_HEADER, Message, MessageHeaders};
pub use namespace::{NAME_BYTES_MAX, Namespace, NamespaceId};
pub use partition::{partition_of, slice_hash};
pub use recompress::recompress;
pub use record::{Header, Record};
pub use records::{Headers, Records, StoredRecord, records};
pub use retain::{KeyedRecord, Retained, emptied, for_each_key, records_without_key, retain};
pub use stored_message::StoredMessage;
pub use tenure::Tenure;
pub use time::{max_timestamp_record, offset_for_timestamp};
pub use topic_name::{TOPIC_NAME_BYTES_MAX, TopicName, TopicNameError};
pub use transaction::{TransactionEnd, end_marker, transaction_end};
pub use validate::{ProduceLimits, sole_batch, validate_deep, validate_produced};
pub use varint::{read_number, write_number};

/// Target of log lines that are events as well: they have a `kind`, the `name` of its object, and their
/// origin: `by`, `from`, `via`, `request`.
pub const EVENTS: &str = "events";
