//! Tables of look-ups: read from their topics up to the ends, before the first record is looked up, and
//! followed from there on.
//!
//! A process reads at least as far as any one before it had read: tables never go back at a restart.

use std::time::Duration;

use stafett_kafka_client::{Client, ClientError, ErrorCode};
use tokio::task::JoinSet;
use tokio::time::sleep;
use uuid::Uuid;

use crate::definition::{Begin, Definition, OnGap};
use crate::lookup::{Lookup, TableTooLarge};
use crate::reader::{Piece, ReadError, Reader, begin};
use crate::secret::SecretError;
use crate::target::Place;
use crate::transform::Step;

/// Wait before reading is tried again.
const AGAIN: Duration = Duration::from_secs(1);
/// Interval of looks whether a topic has more partitions.
const LOOK: Duration = Duration::from_secs(30);

/// Reason why a table is not there, or not current any more.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum TableError {
    #[error("the table of the topic {topic} cannot be read: {why}")]
    Unreadable { topic: String, why: String },
    /// It has to be read anew.
    #[error("the topic {0} of a table is another one, or has other partitions")]
    Changed(String),
    #[error(transparent)]
    TooLarge(#[from] TableTooLarge),
    #[error(transparent)]
    Secret(#[from] SecretError),
}

impl TableError {
    fn unreadable(lookup: &Lookup, why: &impl ToString) -> Self {
        Self::Unreadable {
            topic: lookup.topic.clone(),
            why: why.to_string(),
        }
    }

    fn of_reader(lookup: &Lookup, why: &ReadError) -> Self {
        match why {
            ReadError::MadeAgain(_) => Self::Changed(lookup.topic.clone()),
            ReadError::Client(_) | ReadError::Gap { .. } | ReadError::Unreadable(_) => {
                Self::unreadable(lookup, why)
            }
        }
    }
}

/// Tables that are kept current for as long as this is there.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    followers: JoinSet<TableError>,
}

impl Tables {
    /// Waits until a table is not current any more. Safe to drop.
    pub(crate) async fn failed(&mut self) -> TableError {
        loop {
            match self.followers.join_next().await {
                Some(Ok(why)) => return why,
                // A follower does not panic, and is never aborted while this is there.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }
}

impl Definition {
    /// Returns the definition with the secrets of its steps as they are now, and with its tables.
    pub(crate) async fn ready(&self, client: &Client) -> Result<(Self, Tables), TableError> {
        let mut ready = self.with_keys()?;
        let tables = load(client, &mut ready).await?;
        Ok((ready, tables))
    }
}

/// Reads the tables of all look-ups.
pub(crate) async fn load(client: &Client, definition: &mut Definition) -> Result<Tables, TableError> {
    let mut tables = Tables::default();
    for step in &mut definition.steps {
        if let Step::Lookup(lookup) = step {
            // The table of another session may be in use yet.
            lookup.table = std::sync::Arc::default();
            read(client, lookup, &mut tables.followers).await?;
        }
    }
    Ok(tables)
}

async fn read(
    client: &Client,
    lookup: &Lookup,
    followers: &mut JoinSet<TableError>,
) -> Result<(), TableError> {
    let failed = |why: ClientError| TableError::unreadable(lookup, &why);
    let topic = client.topic(&lookup.topic).await.map_err(failed)?;
    let count = topic.partitions.len();
    for partition in &topic.partitions {
        let place = Place {
            topic: lookup.topic.clone(),
            partition: u32::try_from(partition.index).unwrap_or(0),
        };
        let (start, end) = begin(client, &place, Begin::Earliest).await.map_err(failed)?;
        let mut reading = Reading {
            lookup: lookup.clone(),
            client: client.clone(),
            place,
            topic: start.topic,
            next: start.next,
        };
        let mut reader = reading.reader();
        while reading.next < end {
            let piece = reader.next().await;
            let piece = piece.ok_or_else(|| TableError::unreadable(lookup, &"reading has ended"))?;
            reading.take(&piece.map_err(|why| TableError::of_reader(lookup, &why))?)?;
        }
        followers.spawn(reading.follow(reader));
    }
    let (client, lookup) = (client.clone(), lookup.clone());
    followers.spawn(async move {
        loop {
            sleep(LOOK).await;
            let is_other = match client.topic(&lookup.topic).await {
                Ok(now) => now.id != topic.id || now.partitions.len() != count,
                Err(why) => why.code() == Some(ErrorCode::UnknownTopicOrPartition),
            };
            if is_other {
                return TableError::Changed(lookup.topic);
            }
        }
    });
    Ok(())
}

/// A partition of a table's topic, and how far it is read.
struct Reading {
    lookup: Lookup,
    client: Client,
    place: Place,
    topic: Option<Uuid>,
    next: u64,
}

impl Reading {
    /// Reads on. Rows that retention has removed meanwhile are a gap, behind which the table is read anew.
    fn reader(&self) -> Reader {
        Reader::spawn(
            &self.client,
            self.place.clone(),
            self.topic,
            self.next,
            OnGap::Stop,
        )
    }

    fn take(&mut self, piece: &Piece) -> Result<(), TableError> {
        for record in &piece.records {
            // Without a key it is no row.
            if let Some(key) = &record.key {
                self.lookup.take(key, record.value.as_deref())?;
            }
        }
        self.next = piece.next;
        Ok(())
    }

    /// Keeps the table current. While the broker is away, it stays as it is.
    async fn follow(mut self, mut reader: Reader) -> TableError {
        loop {
            match reader.next().await {
                Some(Ok(piece)) => {
                    if let Err(why) = self.take(&piece) {
                        return why;
                    }
                }
                Some(Err(ReadError::Client(_))) | None => {
                    sleep(AGAIN).await;
                    reader = self.reader();
                }
                Some(Err(why)) => return TableError::of_reader(&self.lookup, &why),
            }
        }
    }
}
