//! Reader of many partitions by long polls, with one request in flight per leader.
//!
//! When an answer arrives, the next offsets follow from its batch headers, and the next request is sent
//! before the batches are returned: the broker works while the caller reads the records. Records are not read
//! here, and nothing is copied.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use stafett_kafka_wire::messages::FetchRequest;
use stafett_kafka_wire::messages::fetch::{FetchPartition, FetchResponse, FetchTopic, PartitionData};
use stafett_kafka_wire::{ApiKey, ErrorCode, Str, Uuid};

use crate::batches::next_offset;
use crate::client::{Backoff, Client};
use crate::connection::Answer;
use crate::error::ClientError;
use crate::offsets::name;
use crate::refusal;
use crate::topic::Topic;

/// Settings of fetch requests.
#[derive(Debug, Clone)]
pub struct FetchSettings {
    /// Maximum time that a broker waits for `bytes_min`.
    pub wait: Duration,
    pub bytes_min: i32,
    pub bytes_max: i32,
    pub partition_bytes_max: i32,
    /// True to read nothing from the first open transaction on, and to be told of aborted ones.
    pub committed: bool,
}

impl Default for FetchSettings {
    fn default() -> Self {
        Self {
            wait: Duration::from_millis(500),
            bytes_min: 1,
            bytes_max: 16 << 20,
            partition_bytes_max: 4 << 20,
            committed: false,
        }
    }
}

/// A partition that is read.
#[derive(Debug, Clone)]
pub struct Source {
    pub topic: Str,
    pub id: Uuid,
    pub partition: i32,
    /// Next offset to fetch.
    pub offset: i64,
    leader: Option<i32>,
    in_flight: bool,
    paused: bool,
}

/// Batches of one partition.
#[derive(Debug)]
pub struct Fetched {
    /// Index of its source, in the order of `add`.
    pub source: usize,
    /// The requested offset; the first batch may begin before it.
    pub from: i64,
    /// High-water mark.
    pub end: i64,
    /// Batches; the last one may be truncated.
    pub bytes: Bytes,
    /// Aborted transactions with batches among them: producer and first offset. Only of committed reads.
    pub aborted: Vec<(i64, i64)>,
}

#[derive(Debug)]
struct Flight {
    sources: Vec<usize>,
    broker: Arc<str>,
    answer: Answer<FetchRequest>,
}

/// Reader of a set of partitions.
#[derive(Debug)]
pub struct Fetcher {
    client: Client,
    settings: FetchSettings,
    sources: Vec<Source>,
    flights: Vec<Flight>,
    backoff: Option<Backoff>,
}

impl Fetcher {
    pub fn new(client: Client, settings: FetchSettings) -> Self {
        Self {
            client,
            settings,
            sources: Vec::new(),
            flights: Vec::new(),
            backoff: None,
        }
    }

    /// Adds partition `index` of `topic`, read from `offset` on.
    pub fn add(&mut self, topic: &Topic, index: i32, offset: i64) {
        let leader = leader_of(topic, index);
        self.sources.push(Source {
            topic: topic.name.clone(),
            id: topic.id,
            partition: index,
            offset,
            leader,
            in_flight: false,
            paused: false,
        });
    }

    /// Sets the time for which a broker waits, from the next request on.
    pub fn set_wait(&mut self, wait: Duration) {
        self.settings.wait = wait;
    }

    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// True from an error that is retried until the next answer.
    pub fn is_failing(&self) -> bool {
        self.backoff.is_some()
    }

    /// Stops fetching a source.
    pub fn stop(&mut self, source: usize) {
        if let Some(source) = self.sources.get_mut(source) {
            source.paused = true;
        }
    }

    /// Returns the batches of the next answer. Empty if the long poll brought none, if all sources are
    /// stopped, or after an error that is retried.
    pub async fn next(&mut self) -> Result<Vec<Fetched>, ClientError> {
        if let Err(error) = self.launch().await {
            self.recover(error).await?;
            return Ok(Vec::new());
        }
        if self.flights.is_empty() {
            return Ok(Vec::new());
        }
        let (place, answer) = first(&mut self.flights).await;
        let flight = self.flights.swap_remove(place);
        for source in &flight.sources {
            if let Some(source) = self.sources.get_mut(*source) {
                source.in_flight = false;
            }
        }
        let taken = match answer {
            Ok(answer) => self.take(&flight, answer),
            Err(error) => Err(error),
        };
        match taken {
            Ok(fetched) => {
                self.backoff = None;
                if let Err(error) = self.launch().await {
                    self.recover(error).await?;
                }
                Ok(fetched)
            }
            Err(error) => {
                self.recover(error).await?;
                Ok(Vec::new())
            }
        }
    }

    /// Waits and looks up the leaders again. Returns the error if it lasts.
    async fn recover(&mut self, error: ClientError) -> Result<(), ClientError> {
        if !error.is_retriable() || error.code() == Some(ErrorCode::UnknownTopicOrPartition) {
            return Err(error);
        }
        let patience = self.client.options().retry_for;
        let backoff = self.backoff.get_or_insert_with(|| Backoff::new(patience));
        if !backoff.wait().await {
            return Err(error);
        }
        let mut names: Vec<Str> = self.sources.iter().map(|source| source.topic.clone()).collect();
        names.sort();
        names.dedup();
        for name in names {
            // An unreachable broker is asked again after the next wait.
            let Ok(topic) = self.client.topic(&name).await else {
                continue;
            };
            let is_another = |source: &&Source| {
                source.topic == name && source.id != topic.id && source.id != Uuid::default()
            };
            if self.sources.iter().any(|source| is_another(&source)) {
                // The topic was deleted and made again.
                return Err(error);
            }
            for source in self.sources.iter_mut().filter(|source| source.topic == name) {
                source.leader = leader_of(&topic, source.partition);
            }
        }
        Ok(())
    }

    /// Sends a request to each leader that has sources and no request in flight for them.
    async fn launch(&mut self) -> Result<(), ClientError> {
        let mut idle: Vec<(i32, Vec<usize>)> = Vec::new();
        for (place, source) in self.sources.iter().enumerate() {
            if source.in_flight || source.paused {
                continue;
            }
            let leader = source.leader.ok_or_else(|| ClientError::NoLeader {
                about: name(&source.topic, source.partition).into(),
            })?;
            match idle.iter_mut().find(|(id, _)| *id == leader) {
                Some((_, places)) => places.push(place),
                None => idle.push((leader, vec![place])),
            }
        }
        for (leader, places) in idle {
            let connection = self.client.broker(leader).await?;
            let version = connection.version::<FetchRequest>(i16::MAX)?;
            let request = self.request(&places);
            let answer = connection.send(&request, version, self.settings.wait).await?;
            for place in &places {
                if let Some(source) = self.sources.get_mut(*place) {
                    source.in_flight = true;
                }
            }
            self.flights.push(Flight {
                sources: places,
                broker: Arc::clone(connection.broker()),
                answer,
            });
        }
        Ok(())
    }

    fn request(&self, places: &[usize]) -> FetchRequest {
        let mut topics: Vec<FetchTopic> = Vec::new();
        for source in places.iter().filter_map(|place| self.sources.get(*place)) {
            let partition = FetchPartition {
                partition: source.partition,
                fetch_offset: source.offset,
                partition_max_bytes: self.settings.partition_bytes_max,
                ..FetchPartition::default()
            };
            match topics.last_mut().filter(|last| last.topic == source.topic) {
                Some(last) => last.partitions.push(partition),
                None => topics.push(FetchTopic {
                    topic: source.topic.clone(),
                    topic_id: source.id,
                    partitions: vec![partition],
                }),
            }
        }
        FetchRequest {
            max_wait_ms: i32::try_from(self.settings.wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: self.settings.bytes_min,
            max_bytes: self.settings.bytes_max,
            isolation_level: self.settings.committed.into(),
            topics,
            ..FetchRequest::default()
        }
    }

    /// Takes over an answer and moves the offsets behind its batches.
    fn take(&mut self, flight: &Flight, answer: FetchResponse) -> Result<Vec<Fetched>, ClientError> {
        let (places, broker) = (&flight.sources, &flight.broker);
        refusal::check(broker, ApiKey::Fetch, answer.error_code, None, || {
            "the fetch as a whole".to_owned()
        })?;
        let mut fetched = Vec::new();
        let mut failed = None;
        // Brokers answer in the order of the request, so the expected source is nearly always the next one.
        let mut expected = 0;
        for topic in answer.responses {
            for row in topic.partitions {
                let is_it = |place: &usize| {
                    self.sources.get(*place).is_some_and(|source| {
                        source.partition == row.partition_index
                            && (source.topic == topic.topic
                                || topic.topic.is_empty() && source.id == topic.topic_id)
                    })
                };
                let at = places
                    .get(expected)
                    .filter(|place| is_it(place))
                    .map(|_| expected)
                    .or_else(|| places.iter().position(is_it));
                let Some((at, place)) = at.and_then(|at| Some((at, *places.get(at)?))) else {
                    continue;
                };
                expected = at + 1;
                match self.take_partition(place, row, broker) {
                    Ok(Some(some)) => fetched.push(some),
                    Ok(None) => {}
                    Err(error) => failed = Some(error),
                }
            }
        }
        // Data of other partitions is returned first. The failed one is fetched again, and fails again if it
        // lasts.
        match failed {
            Some(error) if fetched.is_empty() => Err(error),
            _ => Ok(fetched),
        }
    }

    fn take_partition(
        &mut self,
        place: usize,
        row: PartitionData,
        broker: &Arc<str>,
    ) -> Result<Option<Fetched>, ClientError> {
        let Some(source) = self.sources.get_mut(place) else {
            return Ok(None);
        };
        let about = || name(&source.topic, source.partition);
        refusal::check(broker, ApiKey::Fetch, row.error_code, None, about)?;
        let bytes = row
            .records
            .map(stafett_kafka_wire::Records::into_bytes)
            .unwrap_or_default();
        let aborted = row.aborted_transactions.unwrap_or_default().into_iter();
        let aborted = aborted.map(|it| (it.producer_id, it.first_offset)).collect();
        let next = next_offset(&bytes).map_err(|error| ClientError::Batch {
            about: about().into(),
            error,
        })?;
        let from = source.offset;
        // Offsets never go back: a broker that sends older batches would be asked for them forever.
        match next {
            Some(next) if next > from => source.offset = next,
            _ => return Ok(None),
        }
        Ok(Some(Fetched {
            source: place,
            from,
            end: row.high_watermark,
            bytes,
            aborted,
        }))
    }
}

fn leader_of(topic: &Topic, index: i32) -> Option<i32> {
    topic
        .partitions
        .iter()
        .find(|partition| partition.index == index)
        .and_then(|partition| partition.leader)
}

/// Waits for the first answer. Returns it with its index.
async fn first(flights: &mut [Flight]) -> (usize, Result<FetchResponse, ClientError>) {
    poll_fn(|context| {
        for (place, flight) in flights.iter_mut().enumerate() {
            if let Poll::Ready(answer) = Pin::new(&mut flight.answer).poll(context) {
                return Poll::Ready((place, answer));
            }
        }
        Poll::Pending
    })
    .await
}
