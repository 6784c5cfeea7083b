//! Topics after a loss of files: their permitted remains, and the continuation of the run.

use stafett_kafka_wire::Uuid;
use stafett_kafka_wire::messages::delete_topics::DeleteTopicState;
use stafett_kafka_wire::messages::metadata::MetadataRequestTopic;
use stafett_kafka_wire::messages::{DeleteTopicsRequest, MetadataRequest};

use super::{Known, Topic};
use crate::server::Server;
use crate::world::{Broken, Finding, World};

impl World {
    /// Returns true if a topic is still the same, so that its records are checked too. If the journal has
    /// reported a loss, the topic may be gone, or a deleted one may be back.
    pub(crate) async fn find_left(
        &mut self,
        server: &mut Server,
        number: u8,
        is_told: bool,
    ) -> Result<bool, Broken> {
        let seen = self.id_of_topic(server, number).await?;
        let Some(topic) = self.kafka.topics.get_mut(usize::from(number)) else {
            return Ok(false);
        };
        let known = topic.known;
        match (known, seen) {
            (Known::There(id) | Known::Deleting(id), Some(seen)) if id == seen => Ok(true),
            (Known::Creating, Some(seen)) if !topic.gone.contains(&seen) => {
                topic.known = Known::There(seen);
                Ok(true)
            }
            (Known::Missing | Known::Creating | Known::Deleting(_), None) => Ok(false),
            (Known::There(_), None) if is_told => Ok(false),
            (_, Some(seen)) if is_told && topic.gone.contains(&seen) => Ok(false),
            (known, seen) => Err(Finding(format!(
                "topic {number} is {known:?}, seen is {seen:?}, and nothing says so"
            ))
            .into()),
        }
    }

    async fn id_of_topic(&mut self, server: &mut Server, number: u8) -> Result<Option<Uuid>, Broken> {
        let Some(name) = self.kafka.topic(number).map(Topic::name) else {
            return Ok(None);
        };
        let asked = MetadataRequestTopic {
            name: Some(name.into()),
            ..MetadataRequestTopic::default()
        };
        let request = MetadataRequest {
            topics: Some(vec![asked]),
            allow_auto_topic_creation: false,
            ..MetadataRequest::default()
        };
        let answer = self.ask(server, 12, &request).await?;
        let seen = answer.topics.first().filter(|topic| topic.error_code == 0);
        Ok(seen.map(|topic| topic.topic_id))
    }

    /// Deletes the remains of a topic.
    pub(crate) async fn delete_left(&mut self, server: &mut Server, number: u8) -> Result<(), Broken> {
        let seen = self.id_of_topic(server, number).await?;
        let Some(topic) = self.kafka.topics.get_mut(usize::from(number)) else {
            return Ok(());
        };
        if let Known::There(id) | Known::Deleting(id) = topic.known {
            topic.gone.push(id);
        }
        topic.gone.extend(seen);
        topic.known = Known::Missing;
        topic.incarnation += 1;
        let name = topic.name();
        if seen.is_none() {
            return Ok(());
        }
        let request = DeleteTopicsRequest {
            topics: vec![DeleteTopicState {
                name: Some(name.into()),
                ..DeleteTopicState::default()
            }],
            timeout_ms: 60_000,
            ..DeleteTopicsRequest::default()
        };
        let answer = self.ask(server, 6, &request).await?;
        match answer.responses.first().map(|topic| topic.error_code) {
            Some(0) => Ok(()),
            _ => Err(Finding(format!("what is left of a topic was not deleted: {answer:?}")).into()),
        }
    }
}
