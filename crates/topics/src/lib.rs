//! Stored topics: a name, a definition, and one log per partition.
//!
//! - `topic`: a topic, its settings, and their stored format
//! - `catalog`: all topics with their definitions and logs: create, change, grow, delete, append, read
//! - `homes`: cells of a cluster in which partitions lie
//! - `cleanup`: cleanup policy and compaction of a topic's logs
//! - `admission`: rules for batches on their way into a topic; `partitioner`: choice of the partition
//! - `truncation`: which offsets a partition may be truncated before
//! - `settings`: settings of topics that have not set their own
//! - `registry`: all topics, by name and by id; `ordered`: in the order of their names, for lists
//! - `source`: the groups' view of topics
//! - `change_log`: names of recently changed topics
//! - `log_read`: read of one log; `batches`: walk over the batches of a read
//! - `cursor`: read-ahead of a log, message by message; `tail`: reader of one log
//! - `new_records`: records to store, as one append; `record_tail`: reader of one log, record by record
//! - `start_position`: where a reader begins
//! - `traffic`: records and bytes that logs took in and gave out
//! - [`names`]: names of topics in namespaces
//! - `producer_ids`: ids for idempotent producers, never given out twice

mod admission;
mod batches;
mod catalog;
mod change_log;
mod cleanup;
mod cursor;
mod homes;
mod log_read;
pub mod names;
mod new_records;
mod ordered;
mod partitioner;
mod producer_ids;
mod record_tail;
mod registry;
mod settings;
mod source;
mod start_position;
mod tail;
mod topic;
mod traffic;
mod truncation;

pub use admission::{AdmitError, Admitted};
pub use batches::Batches;
pub use catalog::{
    AlterError, CreateError, DeleteError, FollowError, GrowError, NewTopic, PARTITIONS_MAX, TopicCatalog,
    TopicCopies,
};
pub use cleanup::{CleanupPolicy, CompactionOptions, UnknownPolicy};
pub use cursor::{Cursor, CursorItem, ReadAheadBudget};
pub use homes::{Cells, SPREAD, cell_of, cell_of_name};
pub use log_read::{LogRead, LogTicket, ReadEnd, SkipReason, Skipped, read_log, read_log_at};
pub use new_records::{NewRecord, RecordError, RecordRefusal, RecordsAppend};
pub use ordered::{TopicPage, TopicRange};
pub use partitioner::partition_by_name;
pub use record_tail::{RecordItem, RecordTail};
pub use registry::{Claim, Topics};
pub use settings::{Rules, TopicDefaults};
pub use source::{TopicShape, TopicSource};
pub use stafett_journal::{
    AbortedTransaction, Append, Bounds, Compaction, LogSlice, LogSpec, Outcome, PlacedBatch, Precondition,
    ProducerStatus, ReadError, ReadFrom, ReadRequest, ReadTicket, Refusal, Retention, Ticket, TimeQuery,
    TimeTicket, Visibility, Watch,
};
pub use start_position::{StartPosition, offset_at_time};
pub use tail::{Tail, TailItem};
pub use topic::{
    AUDIT_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Topic, TopicId, TopicKind, TopicSettings, is_internal,
};
pub use traffic::{LogTraffic, Traffic, TrafficCounts};
pub use truncation::TruncateError;
