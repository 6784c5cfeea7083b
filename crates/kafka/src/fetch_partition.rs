//! A partition of a fetch, and the reply for it.

use smallvec::SmallVec;
use stafett_access::{Action, Caller};
use stafett_broker::Broker;
use stafett_kafka_wire::ErrorCode;
use stafett_model::{LogId, Offset};
use stafett_topics::{Bounds, LogSlice, OFFSETS_TOPIC, ReadFrom, Visibility, cell_of};

use crate::authority::check_topic;
use crate::leader_epoch::check_leader_epoch;
use crate::request_reader::TopicKey;

/// Offset that was never sent.
pub(crate) const UNREPORTED: i64 = -1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Forgotten by the client. It keeps its number, under which its log is still watched.
    Forgotten,
    Idle,
    /// Read in this fetch without a result.
    Quiet,
    /// Queued to be read.
    Active,
}

#[derive(Debug)]
pub(crate) struct Partition {
    pub topic: TopicKey,
    pub number: i32,
    pub stage: Stage,
    pub log: Result<LogId, ErrorCode>,
    /// Reason why no read was attempted.
    pub failed: Option<ErrorCode>,
    pub watched: Option<LogId>,
    pub fetch_offset: i64,
    pub bytes_max: usize,
    pub leader_epoch: i32,
    /// Bounds at the last read.
    pub bounds: Option<Bounds>,
    /// End and start offset that the client was sent last.
    pub last_reported: (i64, i64),
}

/// A requested partition.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PartitionRequest {
    pub partition: i32,
    /// The client's leader epoch, or -1.
    pub leader_epoch: i32,
    pub fetch_offset: i64,
    pub bytes_max: i32,
}

/// Reply for one partition.
#[derive(Debug)]
pub(crate) struct PartitionReply {
    pub number: u32,
    pub end: i64,
    /// Last stable offset.
    pub stable: i64,
    pub start: i64,
    pub result: Result<LogSlice, ErrorCode>,
}

pub(crate) type PartitionReplies = SmallVec<[PartitionReply; 1]>;

impl PartitionReply {
    pub(crate) fn new(number: u32, result: Result<LogSlice, ErrorCode>) -> Self {
        Self {
            number,
            end: UNREPORTED,
            stable: UNREPORTED,
            start: UNREPORTED,
            result,
        }
    }

    pub(crate) fn has_records(&self) -> bool {
        self.result.as_ref().is_ok_and(|run| run.bytes > 0)
    }
}

impl Partition {
    /// Creates a partition that is to be read.
    pub(crate) fn new(topic: &TopicKey, asked: &PartitionRequest) -> Self {
        Self {
            topic: topic.clone(),
            number: asked.partition,
            stage: Stage::Active,
            log: Err(ErrorCode::UnknownTopicOrPartition),
            failed: None,
            watched: None,
            fetch_offset: asked.fetch_offset,
            bytes_max: usize::try_from(asked.bytes_max).unwrap_or(0),
            leader_epoch: asked.leader_epoch,
            bounds: None,
            last_reported: (UNREPORTED, UNREPORTED),
        }
    }

    /// Estimates the number of requested records in a run. Its first batch may also hold records before the
    /// requested offset.
    pub(crate) fn records_of(&self, run: &LogSlice) -> u64 {
        let from = u64::try_from(self.fetch_offset).unwrap_or(0);
        run.next.0.saturating_sub(from)
    }

    /// Looks up the log. Returns true if it belongs to `__consumer_offsets`.
    pub(crate) fn resolve(&mut self, broker: &Broker) -> bool {
        let topic = self.topic.find(broker.topics());
        let topic = topic.filter(|topic| broker.catalog().is_of_clients(topic));
        let is_of_commits = topic.as_ref().is_some_and(|topic| *topic.name == *OFFSETS_TOPIC);
        self.log = topic.ok_or_else(|| self.topic.unknown()).and_then(|topic| {
            let log = u32::try_from(self.number)
                .ok()
                .and_then(|number| topic.log(number));
            log.ok_or(ErrorCode::UnknownTopicOrPartition)
        });
        is_of_commits
    }

    /// Returns the read. Rights are checked for each, as sessions outlive their changes.
    pub(crate) fn readable(
        &self,
        broker: &Broker,
        caller: &Caller,
        visibility: Visibility,
    ) -> Result<ReadFrom, ErrorCode> {
        if !caller.is_unrestricted() {
            self.check(broker, caller)?;
        }
        let log = self.log?;
        if cell_of(log).is_some() {
            return Err(ErrorCode::NotLeaderOrFollower);
        }
        // Epochs below -1 mean no epoch, too.
        check_leader_epoch(broker, self.leader_epoch.max(-1))?;
        let offset = u64::try_from(self.fetch_offset).map_err(|_| ErrorCode::OffsetOutOfRange)?;
        Ok(ReadFrom {
            log,
            offset: Offset(offset),
            bytes_max: self.bytes_max,
            visibility,
        })
    }

    /// Checks that the caller may read the topic. Of one that it named itself, it is told only the refusal.
    fn check(&self, broker: &Broker, caller: &Caller) -> Result<(), ErrorCode> {
        let topic = self.topic.find(broker.topics());
        let name = match &topic {
            Some(topic) => &topic.name,
            None if self.topic.by_id => return Ok(()),
            None => &*self.topic.name,
        };
        check_topic(broker, caller, Action::Read, name)
    }
}
