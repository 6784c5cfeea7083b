//! Commits of one task, or of several together.

use std::fmt;

use schemars::JsonSchema;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeSeed, Error as _, IntoDeserializer, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use stafett_http::body::Object;

use super::commit::{Commit, Stored};

/// A commit, or `tasks`: commits of several claims, which are stored together or not at all.
#[derive(Debug, JsonSchema)]
#[schemars(untagged, rename = "AppCommits")]
pub(super) enum Wanted {
    One(Box<Commit>),
    Together {
        #[schemars(with = "Vec<Commit>")]
        tasks: Vec<Object<Commit>>,
    },
}

/// Answer to a commit, or to several in their order.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
#[schemars(rename = "AppCommittedAll")]
pub(super) enum Answer {
    One(Stored),
    Together { tasks: Vec<Stored> },
}

impl Wanted {
    /// Returns the commits, and true if they are stored together.
    pub(super) fn commits(self) -> (Vec<Commit>, bool) {
        match self {
            Self::One(commit) => (vec![*commit], false),
            Self::Together { tasks } => (tasks.into_iter().map(|Object(commit)| commit).collect(), true),
        }
    }
}

impl<'de> Deserialize<'de> for Wanted {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        reader.deserialize_map(WantedVisitor)
    }
}

struct WantedVisitor;

impl<'de> Visitor<'de> for WantedVisitor {
    type Value = Wanted;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a commit, or commits in tasks")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Wanted, A::Error> {
        let first: Option<String> = fields.next_key()?;
        if first.as_deref() != Some("tasks") {
            let fields = MapAccessDeserializer::new(WithFirst { first, fields });
            return Commit::deserialize(fields).map(|commit| Wanted::One(Box::new(commit)));
        }
        let tasks = fields.next_value()?;
        match fields.next_key::<String>()? {
            None => Ok(Wanted::Together { tasks }),
            Some(other) => Err(A::Error::unknown_field(&other, &["tasks"])),
        }
    }
}

/// Fields of which the name of the first was read already.
struct WithFirst<A> {
    first: Option<String>,
    fields: A,
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for WithFirst<A> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        match self.first.take() {
            Some(first) => seed.deserialize(first.into_deserializer()).map(Some),
            None => self.fields.next_key_seed(seed),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, A::Error> {
        self.fields.next_value_seed(seed)
    }
}
