//! Administration of topics: creation, deletion, settings, partitions, sizes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use stafett_kafka_wire::messages::create_partitions::CreatePartitionsTopic;
use stafett_kafka_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use stafett_kafka_wire::messages::delete_topics::DeleteTopicState;
use stafett_kafka_wire::messages::describe_configs::DescribeConfigsResource;
use stafett_kafka_wire::messages::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use stafett_kafka_wire::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
    DescribeLogDirsRequest, IncrementalAlterConfigsRequest,
};
use stafett_kafka_wire::{ApiKey, ErrorCode, Str, Uuid};

use crate::client::{Backoff, Client};
use crate::error::ClientError;
use crate::refusal;

const TOPIC: i8 = 2;
/// Time that the broker may take for a request.
const ADMIN_TIMEOUT_MS: i32 = 30_000;
/// Maximum topics per request for settings.
const RESOURCES_MAX: usize = 500;

/// A topic to be created.
#[derive(Debug, Clone, Default)]
pub struct NewTopic {
    pub name: String,
    /// `None` means the broker's default.
    pub partitions: Option<i32>,
    pub replication: Option<i16>,
    pub settings: Vec<(String, String)>,
    /// True if the broker only checks that the topic could be created.
    pub dry_run: bool,
}

/// A topic that was created.
#[derive(Debug, Clone)]
pub struct Created {
    pub partitions: Option<i32>,
}

/// A setting of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub name: Str,
    /// `None` if the broker does not reveal it.
    pub value: Option<Str>,
    /// True if it was set for this topic.
    pub is_own: bool,
    pub is_read_only: bool,
}

/// A change of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Set(String, String),
    /// Reset to the default.
    Unset(String),
}

impl Client {
    /// Creates a topic and waits until it can be used: a broker may answer before all brokers know the topic.
    pub async fn create_topic(&self, topic: &NewTopic) -> Result<Created, ClientError> {
        let created = self.ask_to_create(topic).await?;
        if topic.dry_run {
            return Ok(created);
        }
        let mut backoff = Backoff::new(self.options().retry_for);
        loop {
            let Err(error) = self.topic(&topic.name).await else {
                return Ok(created);
            };
            let is_unknown = error.code() == Some(ErrorCode::UnknownTopicOrPartition);
            if !is_unknown || !backoff.wait().await {
                return Err(error);
            }
        }
    }

    async fn ask_to_create(&self, topic: &NewTopic) -> Result<Created, ClientError> {
        let setting = |(name, value): &(String, String)| CreatableTopicConfig {
            name: Str::copy_from(name),
            value: Some(Str::copy_from(value)),
        };
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: Str::copy_from(&topic.name),
                num_partitions: topic.partitions.unwrap_or(-1),
                replication_factor: topic.replication.unwrap_or(-1),
                assignments: Vec::new(),
                configs: topic.settings.iter().map(setting).collect(),
            }],
            timeout_ms: ADMIN_TIMEOUT_MS,
            validate_only: topic.dry_run,
        };
        let about = || format!("topic `{}`", topic.name);
        self.retrying(|| async {
            let (connection, answer) = self.call(&request).await?;
            let row = answer.topics.first().ok_or_else(|| ClientError::Missing {
                broker: Arc::clone(connection.broker()),
                api: ApiKey::CreateTopics,
                what: about().into(),
            })?;
            let message = row.error_message.as_ref();
            refusal::check(
                connection.broker(),
                ApiKey::CreateTopics,
                row.error_code,
                message,
                about,
            )?;
            Ok(Created {
                partitions: (row.num_partitions > 0).then_some(row.num_partitions),
            })
        })
        .await
    }

    pub async fn delete_topic(&self, name: &str) -> Result<(), ClientError> {
        let connection = self.any().await?;
        let version = connection.version::<DeleteTopicsRequest>(i16::MAX)?;
        let mut request = DeleteTopicsRequest {
            timeout_ms: ADMIN_TIMEOUT_MS,
            ..DeleteTopicsRequest::default()
        };
        if version >= 6 {
            request.topics.push(DeleteTopicState {
                name: Some(Str::copy_from(name)),
                topic_id: Uuid::ZERO,
            });
        } else {
            request.topic_names.push(Str::copy_from(name));
        }
        let answer = connection.send(&request, version, Duration::ZERO).await?.await?;
        for row in &answer.responses {
            let message = row.error_message.as_ref();
            refusal::check(
                connection.broker(),
                ApiKey::DeleteTopics,
                row.error_code,
                message,
                || format!("topic `{name}`"),
            )?;
        }
        Ok(())
    }

    /// Returns the settings of each topic, in the order of `topics`: all, or those of `names`.
    pub async fn settings(
        &self,
        topics: &[Str],
        names: Option<&[&'static str]>,
    ) -> Result<Vec<Vec<Setting>>, ClientError> {
        let mut found: BTreeMap<Str, Vec<Setting>> = BTreeMap::new();
        for chunk in topics.chunks(RESOURCES_MAX) {
            let resource = |topic: &Str| DescribeConfigsResource {
                resource_type: TOPIC,
                resource_name: topic.clone(),
                configuration_keys: names.map(|names| names.iter().copied().map(Str::from_static).collect()),
            };
            let request = DescribeConfigsRequest {
                resources: chunk.iter().map(resource).collect(),
                include_synonyms: false,
                include_documentation: false,
            };
            let (connection, answer) = self.call(&request).await?;
            for row in answer.results {
                let message = row.error_message.as_ref();
                refusal::check(
                    connection.broker(),
                    ApiKey::DescribeConfigs,
                    row.error_code,
                    message,
                    || format!("topic `{}`", row.resource_name),
                )?;
                let setting =
                    |row: &stafett_kafka_wire::messages::describe_configs::DescribeConfigsResourceResult| {
                        Setting {
                            name: row.name.clone(),
                            value: row.value.clone(),
                            // Source 1 is the topic's own, dynamic setting.
                            is_own: row.config_source == 1,
                            is_read_only: row.read_only,
                        }
                    };
                found.insert(row.resource_name, row.configs.iter().map(setting).collect());
            }
        }
        Ok(topics
            .iter()
            .map(|topic| found.remove(topic).unwrap_or_default())
            .collect())
    }

    pub async fn alter_settings(
        &self,
        topic: &str,
        changes: &[Change],
        dry_run: bool,
    ) -> Result<(), ClientError> {
        let config = |change: &Change| match change {
            Change::Set(name, value) => AlterableConfig {
                name: Str::copy_from(name),
                config_operation: 0,
                value: Some(Str::copy_from(value)),
            },
            Change::Unset(name) => AlterableConfig {
                name: Str::copy_from(name),
                config_operation: 1,
                value: None,
            },
        };
        let request = IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type: TOPIC,
                resource_name: Str::copy_from(topic),
                configs: changes.iter().map(config).collect(),
            }],
            validate_only: dry_run,
        };
        let (connection, answer) = self.call(&request).await?;
        for row in &answer.responses {
            let message = row.error_message.as_ref();
            refusal::check(
                connection.broker(),
                ApiKey::IncrementalAlterConfigs,
                row.error_code,
                message,
                || format!("topic `{topic}`"),
            )?;
        }
        Ok(())
    }

    /// Raises a topic's partitions to `count` in all.
    pub async fn grow_topic(&self, topic: &str, count: i32, dry_run: bool) -> Result<(), ClientError> {
        let request = CreatePartitionsRequest {
            topics: vec![CreatePartitionsTopic {
                name: Str::copy_from(topic),
                count,
                assignments: None,
            }],
            timeout_ms: ADMIN_TIMEOUT_MS,
            validate_only: dry_run,
        };
        let (connection, answer) = self.call(&request).await?;
        for row in &answer.results {
            let message = row.error_message.as_ref();
            refusal::check(
                connection.broker(),
                ApiKey::CreatePartitions,
                row.error_code,
                message,
                || format!("topic `{topic}`"),
            )?;
        }
        Ok(())
    }

    /// Returns bytes on disk by topic, summed over the partitions of one broker.
    pub async fn sizes(&self) -> Result<BTreeMap<Str, u64>, ClientError> {
        let (connection, answer) = self.call(&DescribeLogDirsRequest { topics: None }).await?;
        let mut sizes: BTreeMap<Str, u64> = BTreeMap::new();
        for folder in answer.results {
            refusal::check(
                connection.broker(),
                ApiKey::DescribeLogDirs,
                folder.error_code,
                None,
                || format!("folder {}", folder.log_dir),
            )?;
            for topic in folder.topics {
                let bytes = topic
                    .partitions
                    .iter()
                    .map(|row| u64::try_from(row.partition_size).unwrap_or(0));
                *sizes.entry(topic.name).or_default() += bytes.sum::<u64>();
            }
        }
        Ok(sizes)
    }
}
