//! A connected client, and its output.

use std::io::{self, IsTerminal, Write};

use serde_json::Value;
use stafett_kafka_client::ErrorCode;
use stafett_kafka_client::{Client, ClientError, Topic};

use super::advice;

/// One run of a daily command.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) client: Client,
    pub(crate) json: bool,
    /// True if output is coloured.
    pub(crate) colour: bool,
}

impl Session {
    pub(super) fn over(client: Client, json: bool) -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            client,
            json,
            colour: io::stdout().is_terminal() && !no_color,
        }
    }

    /// Prints a JSON object in one line.
    pub(crate) fn object(value: &Value) -> anyhow::Result<()> {
        writeln!(io::stdout(), "{value}")?;
        Ok(())
    }

    /// Prints text for people; nothing with `--json`.
    pub(crate) fn say(&self, text: &str) -> anyhow::Result<()> {
        if !self.json {
            writeln!(io::stdout(), "{text}")?;
        }
        Ok(())
    }

    /// Returns a topic. The error for a missing one names the nearest topic and how to create it.
    pub(crate) async fn topic(&self, name: &str) -> anyhow::Result<Topic> {
        let error = match self.client.topic(name).await {
            Ok(topic) => return Ok(topic),
            Err(error) => error,
        };
        Err(self.explain_topic(name, error).await)
    }

    /// Adds advice to an error about a topic.
    pub(crate) async fn explain_topic(&self, name: &str, error: ClientError) -> anyhow::Error {
        if error.code() != Some(ErrorCode::UnknownTopicOrPartition) {
            return error.into();
        }
        let names = self.client.topics().await.unwrap_or_default();
        advice::unknown_topic(name, names.iter().map(|topic| topic.name.as_str()))
    }

    /// Adds advice to an error about a group.
    pub(crate) async fn explain_group(&self, name: &str, error: ClientError) -> anyhow::Error {
        if error.code() != Some(ErrorCode::GroupIdNotFound) {
            return error.into();
        }
        let names = self.client.groups().await.unwrap_or_default();
        advice::unknown_group(name, names.iter().map(|group| group.name.as_str()))
    }
}
