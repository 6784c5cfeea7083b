//! Messages between a worker and the broker, in JSON (`docs/apps.md`, "Over a WebSocket").

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::drivers::DriverError;

/// The fields that name the kind of a message.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Head<'a> {
    pub(super) id: Option<u64>,
    #[serde(borrow)]
    pub(super) event: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) notice: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) error: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) info: Option<Cow<'a, str>>,
}

impl Head<'_> {
    /// Fails if this is a refusal of the command.
    pub(super) fn check(&self, command: &str) -> Result<(), DriverError> {
        match &self.error {
            Some(code) => {
                let info = self.info.as_deref().unwrap_or_default();
                Err(DriverError::Failed(format!("{command}: {code}: {info}")))
            }
            None => Ok(()),
        }
    }
}

/// The answer to `join`.
#[derive(Debug, Deserialize)]
pub(super) struct Joined {
    pub(super) tasks: usize,
    pub(super) worker_timeout_ms: u64,
}

/// An event about a task.
#[derive(Debug, Deserialize)]
pub(super) struct OfTask {
    pub(super) task: String,
    pub(super) epoch: u64,
    /// Of a claim: the number of the last commit, and entries of the task's tables.
    #[serde(default)]
    pub(super) seq: u64,
    #[serde(default)]
    pub(super) entries: usize,
}

/// Records of a task, and timers that are due before them.
#[derive(Debug, Deserialize)]
pub(super) struct Records<'a> {
    pub(super) task: String,
    #[serde(default)]
    pub(super) due: Vec<(String, i64, String)>,
    #[serde(default, borrow, rename = "records")]
    pub(super) list: Vec<Record<'a>>,
    #[serde(borrow)]
    pub(super) next: &'a RawValue,
}

#[derive(Debug, Deserialize)]
pub(super) struct Record<'a> {
    #[serde(borrow)]
    pub(super) key: Cow<'a, str>,
    /// Content that is a text.
    #[serde(default, borrow)]
    pub(super) value: Option<Cow<'a, str>>,
    #[serde(default, borrow)]
    pub(super) value_base64: Option<&'a RawValue>,
}

/// A page of a table.
#[derive(Debug, Deserialize)]
pub(super) struct Page {
    pub(super) entries: Vec<Entry>,
    pub(super) next: Option<u64>,
}

/// Messages of a session, each base64 in JSON as it came: passed on without a look at its characters.
#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) value: Vec<Box<RawValue>>,
}

/// A command.
#[derive(Debug, Serialize)]
pub(super) struct Command<'a, T> {
    #[serde(rename = "command")]
    pub(super) name: &'a str,
    pub(super) id: u64,
    #[serde(flatten)]
    pub(super) what: T,
}

#[derive(Debug, Serialize)]
pub(super) struct Commits<'a> {
    pub(super) tasks: &'a [Commit],
}

/// A step of one task.
#[derive(Debug, Serialize)]
pub(super) struct Commit {
    pub(super) task: String,
    pub(super) epoch: u64,
    pub(super) seq: u64,
    pub(super) next: Box<RawValue>,
    #[serde(flatten)]
    pub(super) step: Step,
}

/// A key, and messages as in [`Entry`].
type Messages = (String, Vec<Box<RawValue>>);

#[derive(Debug, Default, Serialize)]
pub(super) struct Step {
    pub(super) put: BTreeMap<&'static str, Vec<Messages>>,
    pub(super) delete: BTreeMap<&'static str, Vec<String>>,
    pub(super) timers: Vec<(String, Option<i64>)>,
    pub(super) emit: Results,
}

/// Messages that are passed on to a topic, by their keys.
#[derive(Debug, Default)]
pub(super) struct Results {
    pub(super) topic: String,
    pub(super) sessions: Vec<Messages>,
}

#[derive(Serialize)]
struct Emit<'a> {
    topic: &'a str,
    key: &'a str,
    value_base64: &'a RawValue,
}

impl Serialize for Results {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let topic = &self.topic;
        serializer.collect_seq(self.sessions.iter().flat_map(|(key, messages)| {
            messages.iter().map(move |value_base64| Emit {
                topic,
                key,
                value_base64,
            })
        }))
    }
}
