//! Records of topics and rows of files, handed out in pieces to programs that ask about them.

use std::ops::Range;

use stafett_kafka_client::{Client, ClientError};
use stafett_model::StoredRecord;
use tokio::sync::mpsc::Sender;

use crate::columns::{Column, Origin};
use crate::definition::{Begin, Definition, OnGap, TargetSpec};
use crate::reader::{Reader, begin};
use crate::rows::Rows;
use crate::target::files::{Counting, Files};
use crate::target::{Place, Steps};

/// A partition, and the committed records that it has now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    pub place: Place,
    pub offsets: Range<u64>,
}

/// Returns the partitions of a topic.
pub async fn parts(client: &Client, topic: &str) -> Result<Vec<Part>, ClientError> {
    let found = client.topic(topic).await?;
    let mut parts = Vec::with_capacity(found.partitions.len());
    for partition in &found.partitions {
        let place = Place {
            topic: topic.to_owned(),
            partition: u32::try_from(partition.index).unwrap_or(0),
        };
        let (start, end) = begin(client, &place, Begin::Earliest).await?;
        let offsets = start.next..end;
        parts.push(Part { place, offsets });
    }
    Ok(parts)
}

/// Returns the offset before which all records of a partition are older than a time in ms.
pub async fn first_since(client: &Client, place: &Place, time_ms: i64) -> Result<u64, ClientError> {
    let (start, _) = begin(client, place, Begin::Time(time_ms)).await?;
    Ok(start.next)
}

/// Sends the committed records of a part, until the receiver is gone.
pub async fn records(client: &Client, part: &Part, pieces: &Sender<Vec<StoredRecord>>) -> Result<(), String> {
    let Part { place, offsets } = part;
    let mut next = offsets.start;
    let mut reader = Reader::spawn(client, place.clone(), None, next, OnGap::Skip);
    while next < offsets.end {
        let ended = || format!("{place}: reading has ended");
        let piece = reader.next().await.ok_or_else(ended)?;
        let mut piece = piece.map_err(|why| why.to_string())?;
        next = next.max(piece.next);
        piece.records.retain(|record| offsets.contains(&record.offset.0));
        if !piece.records.is_empty() && pieces.send(piece.records).await.is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Returns the columns of a sink's files. An error if it writes none that have columns.
pub fn columns(sink: &Definition) -> Result<&[Column], String> {
    let has_columns = sink.columns.iter().all(|column| column.origin != Origin::Whole);
    if let TargetSpec::Files(_) = &sink.target
        && has_columns
    {
        return Ok(&sink.columns);
    }
    Err(format!("the sink {} writes no files with columns", sink.name))
}

/// Files of a sink that count, read one after the other.
#[derive(Debug)]
pub struct FileRows {
    target: Files,
    left: std::vec::IntoIter<Counting>,
}

impl FileRows {
    /// Lists the files.
    pub async fn open(sink: &Definition) -> Result<Self, String> {
        columns(sink)?;
        let TargetSpec::Files(spec) = &sink.target else {
            return Err(format!("the sink {} writes no files", sink.name));
        };
        let mut target = Files::new(&sink.name, spec, &sink.columns, || 0, Steps::default());
        let found = target.counting().await.map_err(|why| why.to_string())?;
        let left = found.files.into_iter();
        Ok(Self { target, left })
    }

    /// Reads the rows of the next file. `None` behind the last one.
    pub async fn next(&mut self) -> Result<Option<Rows>, String> {
        let Some(file) = self.left.next() else {
            return Ok(None);
        };
        let rows = self.target.rows_of(&file).await;
        rows.map(Some).map_err(|why| why.to_string())
    }
}
