//! Rows of the last records of a sink's topics, without a target.

use stafett_kafka_client::{Client, ClientError, Place as Position};

use crate::convert::{Converted, Converter};
use crate::definition::{Definition, OnGap};
use crate::gather::Poison;
use crate::reader::{ReadError, Reader};
use crate::rollup::Groups;
use crate::rows::Rows;
use crate::target::Place;

/// Rows of one partition.
#[derive(Debug)]
pub struct Tried {
    pub place: Place,
    pub rows: Rows,
    pub poison: Vec<Poison>,
}

/// Reason why records cannot be tried.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{0}")]
    Unreadable(String),
}

impl From<ReadError> for TrialError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Client(why) => Self::Client(why),
            why @ (ReadError::Gap { .. } | ReadError::MadeAgain(_) | ReadError::Unreadable(_)) => {
                Self::Unreadable(why.to_string())
            }
        }
    }
}

/// Converts the last records of each partition. The tables are those of the broker `own`; `client` is one of
/// the broker that has the records.
pub async fn trial(
    own: &Client,
    client: &Client,
    definition: &Definition,
    last: u64,
) -> Result<Vec<Tried>, TrialError> {
    let ready = definition.ready(own).await;
    let (definition, _tables) = &ready.map_err(|why| TrialError::Unreadable(why.to_string()))?;
    let mut all = Vec::new();
    for name in &definition.from {
        let topic = client.topic(name).await?;
        let starts = client.offsets(&[&topic], Position::Start).await?;
        let ends = client.offsets(&[&topic], Position::CommittedEnd).await?;
        let bounds = starts.iter().flatten().zip(ends.iter().flatten());
        for (partition, (start, end)) in topic.partitions.iter().zip(bounds) {
            let bound =
                |offset: &Option<i64>| offset.and_then(|offset| u64::try_from(offset).ok()).unwrap_or(0);
            let (start, end) = (bound(start), bound(end));
            let place = Place {
                topic: name.clone(),
                partition: u32::try_from(partition.index).unwrap_or(0),
            };
            let from = end.saturating_sub(last).max(start);
            all.push(partition_tried(client, definition, place, from..end).await?);
        }
    }
    Ok(all)
}

async fn partition_tried(
    client: &Client,
    definition: &Definition,
    place: Place,
    range: std::ops::Range<u64>,
) -> Result<Tried, TrialError> {
    let mut converter = Converter::new(
        definition.columns.clone(),
        definition.steps.clone(),
        definition.on_unknown,
    );
    let mut rows = Rows::new(definition.columns.len());
    let mut groups = Groups::default();
    let mut poison = Vec::new();
    let mut next = range.start;
    let mut reader = Reader::spawn(client, place.clone(), None, next, OnGap::Skip);
    while next < range.end {
        let Some(piece) = reader.next().await else {
            break;
        };
        let piece = piece?;
        for (at, record) in piece.records.iter().enumerate() {
            if !range.contains(&record.offset.0) {
                continue;
            }
            let result = loop {
                let result = match &definition.rollup {
                    Some(rollup) => converter.fold(rollup, &place, record, &mut groups),
                    None => converter.convert(&place, record, &mut rows),
                };
                if result != Ok(Converted::Waits) {
                    break result;
                }
                let asked = converter.fetch(&place, piece.records.iter().skip(at)).await;
                asked.map_err(|why| TrialError::Unreadable(format!("a look-up: {why}")))?;
            };
            if let Err(reason) = result {
                let offset = record.offset.0;
                poison.push(Poison { offset, reason });
            }
        }
        next = piece.next;
    }
    if let Some(rollup) = &definition.rollup {
        groups.drain(rollup, range.start, &mut rows);
    }
    Ok(Tried { place, rows, poison })
}
