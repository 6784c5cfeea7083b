//! A producer of the topic below a queue: each record is a batch of its own, sent once.

use std::collections::VecDeque;

use bytes::Bytes;
use stafett_kafka_wire::messages::ProduceRequest;
use stafett_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};
use stafett_model::{BatchBuilder, Codec, Record};

use super::Copies;
use crate::host;
use crate::kafka::connection::Connection;
use crate::server::Server;
use crate::world::Finding;

const VERSION: i16 = 9;

/// A plain producer.
#[derive(Debug, Clone, Default)]
pub(super) struct Feed {
    connection: Option<Connection>,
    /// Number of its connections.
    connections: u64,
    /// Messages that are not answered.
    waiting: VecDeque<usize>,
}

impl Feed {
    pub(super) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn connect(&mut self, server: &mut Server) -> Result<(), Finding> {
        if self.connection.is_none() {
            let socket = server
                .connect_kafka()
                .map_err(|error| Finding(error.to_string()))?;
            self.connection = Some(Connection::new(socket));
            self.connections += 1;
        }
        Ok(())
    }

    /// Returns the stream within which the queue keeps the order of a partition's records.
    pub(super) fn stream(&self, partition: u8) -> u64 {
        self.connections * 256 + u64::from(partition) + 1
    }

    pub(super) fn leave(&mut self) {
        self.connection = None;
        self.waiting.clear();
    }

    /// Forgets all records.
    pub(super) fn forget_all(&mut self) {
        self.leave();
    }

    pub(super) fn send(&mut self, topic: &'static str, partition: u8, number: usize) -> Result<(), Finding> {
        let value = format!("{number}:0:");
        let record = Record {
            value: Some(value.as_bytes()),
            timestamp: host::wall_ms(),
            ..Record::default()
        };
        let mut batch = BatchBuilder::new(Codec::None);
        let built = batch.push(&record).and_then(|()| batch.finish());
        let records: Bytes = built.map_err(|error| Finding(format!("a batch cannot be built: {error}")))?;
        let request = ProduceRequest {
            acks: -1,
            timeout_ms: 1000,
            topic_data: vec![TopicProduceData {
                name: topic.into(),
                partition_data: vec![PartitionProduceData {
                    index: partition.into(),
                    records: Some(records),
                }],
                ..TopicProduceData::default()
            }],
            ..ProduceRequest::default()
        };
        if let Some(connection) = &mut self.connection {
            connection.send(VERSION, &request);
            self.waiting.push_back(number);
        }
        Ok(())
    }

    pub(super) fn turn(
        &mut self,
        copies: &mut Copies,
        may_refuse: bool,
        notes: &mut Vec<String>,
    ) -> Result<(), Finding> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        connection.turn();
        while let Some(answer) = connection.answer() {
            let number = self.waiting.pop_front();
            let answer = connection.read::<ProduceRequest>(VERSION, answer)?;
            let topic = answer.responses.first();
            let partition = topic.and_then(|topic| topic.partition_responses.first());
            let code = partition.map_or(-1, |partition| partition.error_code);
            notes.push(format!("{number:?} of the view is answered {code}"));
            match (number, code) {
                (Some(number), 0) => copies.confirm(number)?,
                _ if may_refuse => {}
                _ => return Err(Finding(format!("record {number:?} of a view is answered {code}"))),
            }
        }
        if Connection::is_cut(self.connection.as_ref()) {
            self.leave();
        }
        Ok(())
    }
}
