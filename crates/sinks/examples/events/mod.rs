//! Records and columns of the programs that measure sinks.

use bytes::Bytes;
use stafett_model::{Headers, Offset, StoredRecord};

#[allow(dead_code, reason = "programs that only post have no columns")]
pub(crate) const COLUMNS: &str = r#"
[sink.rate.columns]
id = { type = "bigint", null = false }
event_type = { from = "eventType", type = "text" }
retention = { from = "retentionTime", type = "bigint" }
application = { from = "applicationId", type = "text" }
country = { type = "text" }
platform = { type = "text" }
score = { type = "double" }
at = { type = "timestamptz" }
active = { type = "boolean" }
message = { type = "text" }
"#;

/// Returns `count` records of about 300 bytes, with more fields as JSON text, and tells their size.
pub(crate) fn records(count: u64, more: &str) -> Vec<StoredRecord> {
    let records: Vec<_> = (0..count).map(|offset| record(offset, more)).collect();
    let bytes = records.iter().filter_map(|record| record.value.as_ref());
    let bytes: usize = bytes.map(Bytes::len).sum();
    println!("{count} records of {} bytes", bytes / records.len().max(1));
    records
}

fn record(offset: u64, more: &str) -> StoredRecord {
    let value = format!(
        "{{\"id\":{offset},\"eventType\":\"QUIT\",\"retentionTime\":{},\"applicationId\":\"app-{}\",\"country\":\"SE\",\
         {more}\"platform\":\"android\",\"score\":{}.25,\"at\":\"2026-11-22T10:{:02}:{:02}Z\",\"active\":true,\
         \"message\":\"a line of a log, as applications write them, long enough to make up three hundred bytes of a whole \
         record\"}}",
        offset % 1000,
        offset % 7,
        offset % 100,
        offset / 60 % 60,
        offset % 60
    );
    StoredRecord {
        offset: Offset(offset),
        timestamp: 0,
        key: None,
        value: Some(Bytes::from(value)),
        headers: Headers::default(),
    }
}
