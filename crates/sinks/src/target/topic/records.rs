//! Rows as batches of records, a batch of each partition at a time.

use stafett_kafka_client::transactional::SealedBatch;
use stafett_kafka_client::{Topic, Transactional, partitioner};
use stafett_model::{BatchBuilder, Codec, Record};

use crate::columns::{Column, Origin};
use crate::convert::write_json;
use crate::definition::TopicSpec;
use crate::headers;
use crate::rows::{Cell, Rows};
use crate::target::{Part, TargetError};

/// Bytes of a batch before compression; a larger record is a batch of its own.
const BATCH_BYTES: usize = 512 << 10;
const BATCH_BYTES_FIRST: usize = 4096;
/// Bytes of a record beside its key, value and headers, at most.
const RECORD_OVERHEAD: usize = 32;
/// Columns in front of those of the value: key, headers, time.
pub(crate) const CARRIED: usize = 3;
/// Header with the place of a record: `TOPIC/PARTITION@OFFSET`.
pub(crate) const FROM: &[u8] = b"stafett-from";

/// A row as it goes over.
#[derive(Debug)]
pub(crate) struct Carried<'a> {
    pub(crate) key: Option<&'a [u8]>,
    headers: &'a [u8],
    pub(crate) timestamp: i64,
}

impl<'a> Carried<'a> {
    pub(crate) fn of(rows: &'a Rows, cells: &[Cell]) -> Self {
        let piece = |place: usize| match cells.get(place) {
            Some(Cell::Bytes(piece) | Cell::Text(piece)) => Some(rows.piece(*piece)),
            _ => None,
        };
        let timestamp = match cells.get(2) {
            Some(Cell::Integer(time)) => *time,
            _ => -1,
        };
        Self {
            key: piece(0),
            headers: piece(1).unwrap_or_default(),
            timestamp,
        }
    }

    pub(crate) fn headers(&self) -> impl Iterator<Item = headers::Header<'a>> + use<'a> {
        headers::read(self.headers)
    }
}

/// Writes the value of a row into `out`. Returns false if there is none: a record that deletes its key.
pub(crate) fn value(out: &mut Vec<u8>, columns: &[Column], rows: &Rows, cells: &[Cell]) -> bool {
    let (columns, cells) = (columns.get(CARRIED..), cells.get(CARRIED..));
    let (Some(columns), Some(cells)) = (columns, cells) else {
        return false;
    };
    if let ([column], [cell]) = (columns, cells)
        && column.origin == Origin::Value
    {
        if let Cell::Bytes(piece) = cell {
            out.extend_from_slice(rows.piece(*piece));
        }
        return *cell != Cell::Null;
    }
    write_json(out, columns, rows, cells);
    true
}

/// The rows of a part, by partition of the target.
pub(super) struct Batches<'a> {
    columns: &'a [Column],
    part: &'a Part<'a>,
    codec: Codec,
    marks_place: bool,
    /// Rows that were not taken yet, by partition.
    queues: Vec<(i32, Vec<usize>, usize)>,
}

impl<'a> Batches<'a> {
    pub(super) fn new(
        spec: &TopicSpec,
        columns: &'a [Column],
        part: &'a Part<'a>,
        topic: &Topic,
    ) -> Result<Self, TargetError> {
        let count = topic.partitions.len();
        let own = part.place.partition as usize;
        if spec.keeps_partitions && own >= count {
            let why = format!(
                "{} has {count} partitions, and none for {}",
                topic.name, part.place
            );
            return Err(TargetError::Stop(why));
        }
        let mut queues: Vec<_> = topic
            .partitions
            .iter()
            .map(|partition| (partition.index, Vec::new(), 0))
            .collect();
        for row in part.rows.range.clone() {
            let key = Carried::of(part.rows.rows, part.rows.rows.row(row)).key;
            let at = match key {
                Some(key) if !spec.keeps_partitions => partitioner::partition_of(key, count),
                _ => own % count.max(1),
            };
            if let Some((_, rows, _)) = queues.get_mut(at) {
                rows.push(row);
            }
        }
        Ok(Self {
            columns,
            part,
            codec: spec.codec,
            marks_place: spec.marks_place,
            queues,
        })
    }

    /// Returns the next batch of each partition that has one.
    pub(super) fn round(
        &mut self,
        producer: &Transactional,
        topic: &Topic,
    ) -> Result<Vec<SealedBatch>, TargetError> {
        let mut sealed = Vec::new();
        let mut queues = std::mem::take(&mut self.queues);
        for (partition, rows, taken) in &mut queues {
            let left = rows.get(*taken..).unwrap_or_default();
            if left.is_empty() {
                continue;
            }
            let mut builder = producer.builder(topic, *partition, self.codec, BATCH_BYTES_FIRST);
            for row in left {
                if !builder.is_empty() && builder.bytes() >= BATCH_BYTES {
                    break;
                }
                self.push(&mut builder, *row)?;
                *taken += 1;
            }
            let records = builder.len();
            let bytes = builder
                .finish()
                .map_err(|why| TargetError::Stop(why.to_string()))?;
            sealed.push(SealedBatch {
                partition: *partition,
                records,
                bytes,
            });
        }
        self.queues = queues;
        Ok(sealed)
    }

    fn push(&self, builder: &mut BatchBuilder, row: usize) -> Result<(), TargetError> {
        let rows = self.part.rows.rows;
        let cells = rows.row(row);
        let carried = Carried::of(rows, cells);
        let mark;
        let mut headers: Vec<_> = carried.headers().collect();
        if self.marks_place {
            mark = format!("{}@{}", self.part.place, rows.offset(row).unwrap_or_default());
            headers.push((FROM, Some(mark.as_bytes())));
        }
        let mut bytes = Vec::with_capacity(RECORD_OVERHEAD);
        let has_value = value(&mut bytes, self.columns, rows, cells);
        let record = Record {
            key: carried.key,
            value: has_value.then_some(&bytes),
            headers: &headers,
            timestamp: carried.timestamp,
        };
        builder.push(&record).map_err(|why| TargetError::Poison {
            class: "record".to_owned(),
            text: why.to_string(),
        })
    }
}
