//! Stored topics behind live topics, created as the rules require.

use std::sync::Arc;

use stafett_live_topics::LogRule;
use stafett_topics::{CreateError, NewTopic, Topic, TopicCatalog, TopicSettings};

use crate::broker::Broker;

impl Broker {
    /// Opens the logs behind live topics, and delivers records appended from now on.
    pub async fn open_live_logs(&self) -> Result<(), CreateError> {
        let rules = self.live_topics().settings.logs.clone();
        self.change_live_logs(&rules).await
    }

    /// Replaces the rules for logs behind live topics; if a stored topic cannot be created, the old rules
    /// stay.
    pub async fn change_live_logs(&self, rules: &[LogRule]) -> Result<(), CreateError> {
        let topics = topics_of(self.catalog(), rules).await?;
        self.live_topics().set_logs(topics);
        Ok(())
    }
}

/// Returns the stored topics of the rules. Missing ones are created.
async fn topics_of(
    catalog: &Arc<TopicCatalog>,
    rules: &[LogRule],
) -> Result<Vec<(LogRule, Arc<Topic>)>, CreateError> {
    let mut found = Vec::with_capacity(rules.len());
    for rule in rules {
        let topic = match catalog.topics().named(&rule.topic) {
            Some(topic) if topic.is_whole() => topic,
            Some(_) => return Err(CreateError::Spread),
            None => create(catalog, rule).await?,
        };
        found.push((rule.clone(), topic));
    }
    Ok(found)
}

async fn create(catalog: &Arc<TopicCatalog>, rule: &LogRule) -> Result<Arc<Topic>, CreateError> {
    let new = NewTopic {
        name: rule.topic.clone(),
        partitions: Some(rule.partitions),
        settings: TopicSettings::default(),
    };
    match catalog.create(vec![new]).await.pop() {
        Some(created) => created,
        None => Err(CreateError::Changing),
    }
}
