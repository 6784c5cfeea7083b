//! Transactional ids and their transactions, from outside.

use stafett_kafka_wire::messages::{DescribeTransactionsRequest, ListTransactionsRequest};
use stafett_kafka_wire::{ApiKey, Str};

use crate::client::Client;
use crate::error::ClientError;
use crate::refusal;

/// A transactional id.
#[derive(Debug, Clone)]
pub struct Transaction {
    pub id: Str,
    /// `Ongoing`, `CompleteCommit`, and other states of Kafka's coordinator.
    pub state: Str,
    pub producer: i64,
    pub epoch: i16,
    pub timeout_ms: i32,
    /// Begin of the open transaction, in ms since 1970.
    pub began_ms: Option<i64>,
    /// Topics and partitions of the open transaction.
    pub partitions: Vec<(Str, Vec<i32>)>,
}

impl Client {
    /// Returns the transactional ids of all brokers, sorted by id.
    pub async fn transactions(&self) -> Result<Vec<Transaction>, ClientError> {
        // Each broker knows only those that it coordinates.
        self.topics().await?;
        let mut found = Vec::new();
        for broker in self.broker_ids() {
            found.extend(self.transactions_of(broker).await?);
        }
        found.sort_unstable_by(|one, other| one.id.cmp(&other.id));
        Ok(found)
    }

    async fn transactions_of(&self, broker: i32) -> Result<Vec<Transaction>, ClientError> {
        let list = ListTransactionsRequest {
            duration_filter: -1,
            ..ListTransactionsRequest::default()
        };
        let described = self
            .retrying(|| async {
                let connection = self.broker(broker).await?;
                let listed = connection.call(&list).await?;
                let subject = || "the list of transactions".to_owned();
                let (broker, api) = (connection.broker(), ApiKey::ListTransactions);
                refusal::check(broker, api, listed.error_code, None, subject)?;
                let ids = listed.transaction_states.into_iter();
                let describe = DescribeTransactionsRequest {
                    transactional_ids: ids.map(|state| state.transactional_id).collect(),
                };
                connection.call(&describe).await
            })
            .await?;
        let states = described.transaction_states.into_iter();
        // An id may have gone since it was listed.
        let there = states.filter(|state| state.error_code == 0);
        Ok(there
            .map(|state| Transaction {
                id: state.transactional_id,
                state: state.transaction_state,
                producer: state.producer_id,
                epoch: state.producer_epoch,
                timeout_ms: state.transaction_timeout_ms,
                began_ms: Some(state.transaction_start_time_ms).filter(|began| *began >= 0),
                partitions: state
                    .topics
                    .into_iter()
                    .map(|topic| (topic.topic, topic.partitions))
                    .collect(),
            })
            .collect())
    }
}
